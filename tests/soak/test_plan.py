"""What a seed gives, and what is known of who is struck."""

from __future__ import annotations

import pytest

from tests.soak.plan import TROUBLES, random_round, troubles_for
from tests.soak.workloads import WORKLOADS

SEED = 1
HAVING = [workload.has for workload in WORKLOADS.values()]
ALL = troubles_for(HAVING, upgrades=True)
WITHOUT_UPGRADES = troubles_for(HAVING, upgrades=False)


def test_a_seed_gives_the_same_rounds_again():
    first, again, other = ([random_round(seed, n, ALL) for n in range(1, 50)] for seed in (7, 7, 8))
    assert first == again != other


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("seed", [7, 11])
def test_no_trouble_is_missing_in_as_many_rounds_as_there_are_troubles(seed, turn):
    """Two runs of two hours had drawn too few replicas in sync not once."""
    numbers = range(turn * len(WITHOUT_UPGRADES) + 1, (turn + 1) * len(WITHOUT_UPGRADES) + 1)
    drawn = {random_round(seed, number, WITHOUT_UPGRADES)[0].trouble for number in numbers}
    assert drawn == set(WITHOUT_UPGRADES) == set(TROUBLES) - {"broker upgraded"}


def test_an_upgrade_begins_every_third_round_and_takes_no_turn_of_another_trouble():
    """A run of two hours had upgraded one of three brokers."""
    first = [random_round(SEED, number, ALL)[0].trouble for number in range(1, 2 * len(ALL))]
    assert first[2::3] == ["broker upgraded"] * len(first[2::3])
    others = [name for name in first if name != "broker upgraded"]
    assert set(others[: len(WITHOUT_UPGRADES)]) == set(WITHOUT_UPGRADES)


def test_troubles_that_need_the_same_thing_do_not_come_together():
    for number in range(1, 300):
        needs = [need for step in random_round(SEED, number, ALL) for need in TROUBLES[step.trouble].needs]
        assert len(needs) == len(set(needs))


def test_a_run_draws_only_what_its_workloads_have():
    without = set(ALL) - set(troubles_for([WORKLOADS["letters"].has], upgrades=False))
    assert without == {"broker upgraded", "executor killed", "executor stopped", "workers outlive the driver"}
    of_producer = troubles_for([WORKLOADS["transfers"].has], upgrades=False)
    assert {"driver killed", "request delivered late"} <= of_producer.keys()
    assert not {"killed at a point", "worker killed"} & of_producer.keys()
