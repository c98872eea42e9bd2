"""Take a safeguard out, and some history breaks a promise: none of them is there for nothing."""

from dataclasses import replace

import pytest
from _pytest.mark import ParameterSet

from tests.model.bounds import AT_LEAST_ONCE, FIRST_ONLY, LARGE, ONE_TASK, SMALL
from tests.model.committing import REFUSED
from tests.model.engine import explore
from tests.model.protocol import question
from tests.model.scenario import SAFEGUARDS, Plan, Scenario
from tests.model.topics import SILENT
from tests.model.world import ANOTHERS, TAKEN, UNASKED

EXPLORATIONS = SMALL | LARGE
MOST = 200_000

TWICE, LOST, STUCK = "is in twice", "and Spark believes it committed", "the query cannot go on"
UNDONE, EARLY, HELD_UP = "it was decided", "before anything was decided", "are left open"
STOPPED, WRONG = "which has taken its place", "says that nothing of it is visible"
TORN = "is decided, and a transaction of it is gone"

# What is taken out, in which exploration (with everything in place it holds), and what breaks then.
CAUGHT: list[tuple[tuple[str, ...], str, str]] = [
    (("fence",), "two runs, two batches", TWICE),
    (("intent's EndTxn",), "two runs, two batches", UNDONE),
    (("intent first",), "versions", EARLY),
    (("unsure raises",), "two runs, a timeout, a lost answer", UNDONE),
    (("deadline",), "versions, close to their timeout", TORN),
    (("look at the driver",), "a fenced run's tasks are retried", TAKEN),
    (("look at what is prepared",), "a task retried", TORN),
    (("skip",), "two runs, two batches", TWICE),
    (("older refused",), "an older checkpoint", TWICE),
    (("older refused",), "versions out of order", LOST),
    (("ledger start",), "the ledger lost", TWICE),
    (("gap refused",), "another guarantee in between", TWICE),
    (("trust for one batch",), "a forgotten trust-checkpoint", TWICE),
    (("trust for one batch",), "a forgotten trust-ledger", LOST),
    (("accepted with its loss",), "a torn batch, accepted", REFUSED),
    (("empty batches",), "batches without rows", STUCK),
    (("one query for each name",), "a name handed over", UNASKED),
    (("one turn for each hand-over",), "a name handed over and back", UNASKED),
    (("query key",), "two queries, one prefix", "rows are lost"),
    (("marker",), "two runs, two batches", STUCK),
    (("ask the marker",), "a zombie attempt", TWICE),
    (("marker of its own transaction",), "all gone, written in another cut", LOST),
    (("ask with the intent",), "the ledger lost", TWICE),
    (("read past the marker",), "reads that lag, a zombie attempt", TWICE),
    (("replay checksum",), "another cut on replay", TWICE),
    (("replay checksum",), "fewer tasks on replay", LOST),
    (("replay checksum",), "an older checkpoint", LOST),
    (("resolved reads",), "two runs, two batches", TWICE),
    (("read under the fence",), "two runs, two batches", TWICE),
    (("barrier",), "reads that lag", TWICE),
    (("continuous fence",), "reads that lag, two batches", TWICE),
    (("abort barrier",), "reads that lag", UNDONE),
    (("abort reads",), "one task, aborts", UNDONE),
    (("abort fence",), "one task, aborts", UNDONE),
    (("abort for its own run",), "one task, aborts", STOPPED),
    (("abort by identity",), "two runs, aborts", STOPPED),
    (("abort fences what it lists",), "one task, aborts", UNDONE),
    (("abort what is listed",), "versions, given up", HELD_UP),
    (("abort what is listed",), "a query stopped in mid-write", HELD_UP),
    (("abort in its own ledger",), "versions, another ledger, given up", UNDONE),
    (("a fenced abort ends its own",), "one task, aborts", HELD_UP),
    (("a fenced abort reads",), "one task, aborts", UNDONE),
    (("abort tells what it ended",), "the ledger lost, an abort", WRONG),
    (("failing tasks abort",), "a task that fails", HELD_UP),
    (("sweep",), "fewer tasks on replay", HELD_UP),
    (("sweep what is listed",), "fewer tasks on replay", UNDONE),
    (("list before the fence",), "one task, three runs", UNDONE),
    (("sweep under an entry",), "another ledger in between", UNDONE),
    (("sweep at the first entry",), "fewer tasks on replay", HELD_UP),
    (("abort one epoch",), "transactions v1, a sweep that sleeps", UNDONE),
    (("fence what is swept",), "before Kafka 3.6, rows that arrive late", TWICE),
    (("look before a sweep",), "before Kafka 3.6, an abort", UNDONE),
    (("end by identity",), "ends that arrive late", EARLY),
    (("init what is open",), "before Kafka 3.6, rows that arrive late", TWICE),
    (("a driver id for each name",), "a batch job beside a stream", ANOTHERS),
    (("entries of its own name",), "a stream beside a batch job", EARLY),
    (("the whole name",), "a batch job beside a stream", ANOTHERS),
    (("resolved reads",), "a batch job beside a stream", STUCK),
    (("resolved reads",), "a stream beside a batch job", TWICE),
    (("markers of this ledger",), "the ledger lost", TWICE),
    (("topics of a replay",), "a topic created again, two batches", SILENT),
    (("topics of both runs",), "one of two topics created again", SILENT),
    (("topics by id",), "a topic created again, two batches", SILENT),
]

# What no safeguard helps against: the limits the documentation names.
LIMITS = [
    (
        "a ledger lost before the first batch is done: batch 0 is no sign that an entry ought to be there",
        Scenario(orderly=True, crashes=1, ledger_losses=1, first_batch_too=True, aborts=False),
        TWICE,
    ),
    (
        "one batch written at-least-once, and killed before Spark's commit of it: its number is the next one",
        Scenario(
            runs=(FIRST_ONLY, AT_LEAST_ONCE, ONE_TASK),
            batches=2,
            orderly=True,
            crashes=1,
            first_batch_too=True,
            aborts=False,
        ),
        TWICE,
    ),
    (
        "another ledger topic in a query's first batch: 0 is no sign that an entry ought to be there",
        Scenario(runs=(ONE_TASK, Plan(cut="one task", ledger=1)), first_batch_too=True, aborts=False),
        TWICE,
    ),
]


def without(name: str, *safeguards: str) -> Scenario:
    return replace(EXPLORATIONS[name], without=frozenset(safeguards))


SEARCHED_LONG = ("abort one epoch", "a fenced run's tasks are retried")
"""Half a minute and more, so not before a merge."""


def slow_if(search: str, *values: object) -> ParameterSet:
    return pytest.param(*values, marks=[pytest.mark.slow] if search in SEARCHED_LONG else [])


@pytest.mark.parametrize(
    ("safeguards", "name", "verdict"), [slow_if(taken[0], taken, *where) for taken, *where in CAUGHT]
)
def test_taking_it_out_is_caught(safeguards, name, verdict):
    answer = explore(question(without(name, *safeguards)), MOST)
    assert answer.verdict is not None, answer
    assert verdict in answer.verdict
    assert answer.history


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_each_is_caught_alone(safeguard):
    assert any(taken == (safeguard,) for taken, _, _ in CAUGHT)


@pytest.mark.parametrize(("limit", "scenario", "verdict"), LIMITS, ids=[limit for limit, _, _ in LIMITS])
def test_a_limit_is_one(limit, scenario, verdict):
    answer = explore(question(scenario), MOST)
    assert answer.verdict is not None, limit
    assert verdict in answer.verdict


@pytest.mark.parametrize(
    "name",
    [
        "two runs, two batches",
        "a zombie attempt",
        "transactions v1",
        "before Kafka 3.6, rows that arrive late",
    ],
)
def test_without_the_sweep_only_readers_wait(name):
    """Brokers that cannot list transactions: no row is written twice or lost."""
    answer = explore(question(without(name, "sweep")), 10 * MOST)
    assert answer.verdict is None or HELD_UP in answer.verdict, answer


@pytest.mark.parametrize(
    "name",
    [slow_if(name, name) for name in ("two runs, two batches", "a fenced run's tasks are retried", "transactions v1")],
)
def test_without_the_looks_a_replay_repairs(name):
    """Brokers that cannot describe transactions: what a fenced run tears is written again, each row once."""
    looks = without(name, "look at the driver", "look at what is prepared")
    answer = explore(question(replace(looks, late_inits=1)), 2 * MOST)
    assert answer.verdict is None, answer
