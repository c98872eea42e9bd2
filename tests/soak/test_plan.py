"""What a seed gives, and what is known of who is struck."""

from __future__ import annotations

from itertools import islice

from tests.soak.plan import TROUBLES, UPGRADE, drawn, troubles_for
from tests.soak.workloads import WORKLOADS

HAVING = [workload.has for workload in WORKLOADS.values()]
ALL = troubles_for(HAVING, upgrades=True)
WITHOUT_UPGRADES = troubles_for(HAVING, upgrades=False)


def test_a_seed_gives_the_same_rounds_again():
    first, again, other = ([*islice(drawn(seed, ALL), 50)] for seed in (7, 7, 8))
    assert first == again != other


def test_no_trouble_is_missing_in_as_many_rounds_as_there_are_troubles():
    """Two runs of two hours had drawn too few replicas in sync not once."""
    first = [steps[0].trouble for steps in islice(drawn(7, WITHOUT_UPGRADES), 3 * len(WITHOUT_UPGRADES))]
    for start in range(0, len(first), len(WITHOUT_UPGRADES)):
        assert set(first[start : start + len(WITHOUT_UPGRADES)]) == set(TROUBLES) - {UPGRADE}


def test_an_upgrade_begins_every_third_round_and_takes_no_turn_of_another_trouble():
    """A run of two hours had upgraded one of three brokers."""
    first = [steps[0].trouble for steps in islice(drawn(1, ALL), 2 * len(ALL))]
    assert set(first[2::3]) == {UPGRADE}
    others = [name for name in first if name != UPGRADE]
    assert set(others[: len(WITHOUT_UPGRADES)]) == set(WITHOUT_UPGRADES)


def test_troubles_that_need_the_same_thing_do_not_come_together():
    for steps in islice(drawn(1, ALL), 300):
        needs = [need for step in steps for need in TROUBLES[step.trouble].needs]
        assert len(needs) == len(set(needs))


def test_a_run_draws_only_what_its_workloads_have():
    without = set(ALL) - set(troubles_for([WORKLOADS["letters"].has], upgrades=False))
    assert without == {UPGRADE, "executor killed", "executor stopped", "workers outlive the driver"}
    of_producer = troubles_for([WORKLOADS["transfers"].has], upgrades=False)
    assert {"driver killed", "request delivered late"} <= of_producer.keys()
    assert not {"killed at a point", "worker killed"} & of_producer.keys()
