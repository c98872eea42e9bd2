"""The short form of ``python -m tests.faults.chaos``, and that its parts see what they are there for."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.chaos.plan import one_of_each, random_round
from tests.faults.chaos.query_job import ROWS, TASKS
from tests.faults.chaos.reader import Expected, ReaderError
from tests.faults.chaos.run import Chaos, _untroubled, is_ours
from tests.faults.chaos.troubles import TROUBLES

SEED = 1

_log = logging.getLogger(__name__)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_query_survives_one_of_each_trouble(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with Chaos(tmp_path, _log.info) as chaos:
        chaos.run(one_of_each(SEED))
    _log.info(chaos.report())
    assert chaos.counts == dict.fromkeys(TROUBLES, 1), "a trouble found nothing to trouble"


def test_a_seed_gives_the_same_rounds_again():
    assert [random_round(7, number) for number in range(1, 50)] == [random_round(7, number) for number in range(1, 50)]
    assert random_round(7, 1) != random_round(8, 1)
    assert one_of_each(3) == one_of_each(3)


def test_every_trouble_comes_up_once_in_the_short_form_and_again_and_again_in_the_long_one():
    assert sorted(step.trouble for steps in one_of_each(SEED) for step in steps) == sorted(TROUBLES)
    drawn = [step.trouble for number in range(1, 100) for step in random_round(SEED, number)]
    assert set(drawn) == set(TROUBLES)


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("seed", [7, 11])
def test_no_trouble_is_missing_in_as_many_rounds_as_there_are_troubles(seed, turn):
    """Two runs of two hours had drawn too few replicas in sync not once."""
    rounds = range(turn * len(TROUBLES) + 1, (turn + 1) * len(TROUBLES) + 1)
    assert {random_round(seed, number)[0].trouble for number in rounds} == set(TROUBLES)


def test_a_trouble_that_begins_every_third_round_takes_no_turn_of_another():
    """A run of two hours had upgraded one of three brokers."""
    troubles = {**TROUBLES, "upgrade": replace(TROUBLES["broker restarted"], every=3)}
    first = [random_round(SEED, number, troubles)[0].trouble for number in range(1, 2 * len(TROUBLES))]
    assert first[2::3] == ["upgrade"] * len(first[2::3])
    others = [name for name in first if name != "upgrade"]
    assert set(others[: len(TROUBLES)]) == set(TROUBLES)


def test_troubles_that_need_the_same_thing_do_not_come_together():
    for rounds in ([random_round(SEED, number) for number in range(1, 300)], one_of_each(SEED)):
        for steps in rounds:
            needs = [need for step in steps for need in TROUBLES[step.trouble].needs]
            assert len(needs) == len(set(needs))


def read(*numbers, partition=0):
    expected = Expected()
    for offset, number in enumerate(numbers):
        expected.take(partition, number, offset)
    return expected


def test_rows_in_order_are_what_is_expected():
    assert read(0, 4, 8).total == 3
    assert read(*range(1, ROWS, TASKS), partition=1).total == ROWS // TASKS


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0, 4, 4), "row 4 where row 8 comes next: doubled or out of order"),
        ((0, 8), "row 8 where row 4 comes next: rows are missing"),
        ((0, 4, 8, 0), "row 0 where row 12 comes next: doubled"),
        ((1,), "row 1 where row 0 comes next"),
    ],
)
def test_a_row_that_is_lost_doubled_or_out_of_order_is_seen_at_once(numbers, said):
    with pytest.raises(ReaderError, match=said):
        read(*numbers)


def test_a_failure_of_the_query_that_no_broker_can_cause_is_a_fault_of_ours():
    assert is_ours("StreamingQueryException: … KeyError: 3 …")
    assert not is_ours("StreamingQueryException: … PlanningError: no broker could be reached …")


@pytest.mark.parametrize(
    ("counts", "missed", "aborted", "elapsed_s", "said"),
    [
        ({"broker killed": 1}, {"broker killed": 4}, 7, 1800, ""),
        ({"broker killed": 3}, {"worker killed": 1}, 7, 1800, "worker killed found nothing to trouble, not once"),
        ({}, {"broker killed": 3}, 0, 10, "broker killed found nothing"),
        ({"broker killed": 3}, {}, 0, 300, "no row was ever aborted"),
        ({"broker killed": 1}, {}, 0, 299, ""),
    ],
)
def test_a_run_in_which_a_kind_of_trouble_never_hit_or_nothing_was_aborted_fails(
    counts, missed, aborted, elapsed_s, said
):
    told = _untroubled(Counter(counts), Counter(missed), aborted, elapsed_s)
    assert told.startswith(said)
    assert bool(told) == bool(said)
