"""The short form of ``python -m tests.histories``, and that its parts do what they are there for."""

from __future__ import annotations

import logging
import sys

import pytest

from tests.faults.chaos.plan import random_round
from tests.faults.chaos.running import rounds
from tests.histories.events import Event, read_history
from tests.histories.figures import figures_of
from tests.histories.soak import Soak, promised
from tests.histories.timeline import Stall, longest_gaps
from tests.histories.troubles import TROUBLES, troubles_for
from tests.histories.workloads import LETTERS, PAIRS, WORKLOADS

SEED = 1
MINUTES = 2

_log = logging.getLogger(__name__)


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_history_of_two_minutes_keeps_every_promise(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    troubles = troubles_for(WORKLOADS.values(), upgrades=False, older_sink=False)
    with Soak(tmp_path, _log.info) as soak:
        judgement = soak.judge(soak.run(rounds(SEED, MINUTES, troubles=troubles)))
    _log.info("%s", judgement.figures)
    assert judgement.holds, "\n".join([judgement.trouble, judgement.lacks, *map(str, judgement.said.findings)])
    assert judgement.figures.visible > 0
    assert judgement.figures.intents > 0, "the hooks have recorded nothing"
    assert judgement.figures.faults, "no fault has hit"


def test_a_seed_gives_each_trouble_in_as_many_rounds_as_there_are():
    rounds = range(1, 3 * len(TROUBLES) // 2 + 1)  # every third one begins with an upgrade
    drawn = {random_round(SEED, number, TROUBLES)[0].trouble for number in rounds}
    assert drawn == set(TROUBLES)
    assert "worker killed" in drawn


def test_a_run_draws_only_what_it_can_do():
    without = troubles_for([LETTERS], upgrades=False, older_sink=False)
    with_all = troubles_for([LETTERS, PAIRS], upgrades=True, older_sink=True)
    assert set(with_all) == set(TROUBLES)
    assert set(with_all) - set(without) == {
        "broker upgraded",
        "older sink",
        "executor killed",
        "executor stopped",
        "driver parted from executors",
        "workers outlive the driver",
    }


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_history_says_where_the_rows_of_each_write_belong(workload):
    said = [promised(write) for write in workload.writes]
    topics = [topic for each in said for topic in (each["topic"], each["dead_letter_topic"]) if topic]
    assert sorted(topics) == sorted(workload.topics)
    assert all(bool(each["dead_letters"]) == bool(each["dead_letter_topic"]) for each in said)
    if workload is LETTERS:
        assert said[0]["dead_letters"] == (7, 17, 27, 37)


class Stalled:
    """A workload in whose last driver the sink has met with an error of its own, and a topic with an open
    transaction."""

    drivers = property(lambda self: self)

    def heal(self):
        pass

    close = heal

    def failures(self):
        return ["KeyError: 7"]

    def await_nothing_open(self, timeout_s):
        raise AssertionError("transactions stay open")


def test_a_history_ends_with_what_the_run_failed_with(tmp_path):
    soak = Soak(tmp_path, _log.info)
    soak.victims = {"letters": Stalled()}
    soak.source = soak.kafka = soak._verdicts = Stalled()
    judgement = soak.judge("a workload stalls")
    (event,) = read_history([judgement.file])
    assert (event.actor, event.kind) == ("soak", "ended")
    assert event["trouble"] == judgement.trouble
    for told in ("a workload stalls", "transactions stay open", "letters: KeyError: 7"):
        assert told in judgement.trouble
    assert judgement.lacks
    assert not judgement.holds


def event(at, kind, **fields):
    return Event(at, at, "test", kind, fields)


def seen(at, *rows, reader="live", isolation="read_committed"):
    pairs = [[offset, row] for offset, row in enumerate(rows)]
    return event(at, "seen", reader=reader, isolation=isolation, topic="t", partition=0, rows=pairs)


def test_the_figures_of_a_history():
    history = [
        event(10.0, "handed", write="a/1", task=0, attempt="1", rows=["a/1/0", "a/1/1"]),
        seen(11.0, "a/1/0"),
        seen(12.0, "a/1/0", "a/1/1", "a/1/0", reader="raw", isolation="read_uncommitted"),
        event(12.5, "fault", name="broker killed", workload="a", phase="begins"),
        event(14.0, "fault", name="broker killed", workload="a", phase="ends"),
        seen(16.0, "b/1/0"),
        seen(17.0, "a/1/1"),
        event(18.0, "verdict", write="a/1", by="spark", outcome="committed", error=""),
        event(18.0, "verdict", write="a/1", by="sink", outcome="committed", error=""),
    ]
    figures = figures_of(history)
    assert (figures.handed, figures.visible, figures.written) == (2, 3, 3)
    assert figures.verdicts == {"committed": 1}
    assert (figures.faults, figures.missed) == ({"broker killed": 1}, {})
    assert figures.stalls == {"": Stall(1.0, 6.0), "a": Stall(1.0, 7.0)}
    assert [(gap.name, gap.stall) for gap in longest_gaps(history)] == [("a", Stall(11.0, 17.0))]
    assert "longest time without a row:\n  of all workloads: 5 s, until second 6\n  a: 6 s, until second 7" in str(
        figures
    )
    assert figures_of([]).stalls == {}
