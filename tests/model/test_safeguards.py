"""Take a safeguard out, and some history breaks a promise: none of them is there for nothing."""

import dataclasses

import pytest

from tests.model.bounds import LARGE, ONE_TASK, SMALL, STREAM
from tests.model.engine import Answer, explore
from tests.model.protocol import question
from tests.model.scenario import SAFEGUARDS, Scenario

EXPLORATIONS = SMALL | LARGE
MOST = 200_000

TWICE, LOST, STUCK = "is in twice", "and Spark believes it committed", "the query cannot go on"
UNDONE, EARLY, HELD_UP = "nobody will write it again", "before anything was decided", "are left open"

# What is taken out, in which exploration (with everything in place it holds), and what breaks then.
CAUGHT: list[tuple[tuple[str, ...], str, str]] = [
    (("fence",), "two runs, two batches", TWICE),
    (("intent's EndTxn",), "two runs, two batches", TWICE),
    (("intent first",), "two runs, two batches", TWICE),
    (("intent first",), "a batch job", EARLY),
    (("unsure raises",), "a batch job, an answer lost", UNDONE),
    (("skip",), "two runs, two batches", TWICE),
    (("skip",), "versions", TWICE),
    (("older refused",), "an older checkpoint", TWICE),
    (("older refused",), "versions out of order", LOST),
    (("ledger start",), "the ledger lost", TWICE),
    (("empty batches",), "batches without rows", STUCK),
    (("query key",), "two queries, one prefix", "rows are lost"),
    (("marker",), "two runs, two batches", STUCK),
    (("ask the marker",), "a zombie attempt", TWICE),
    (("ask with the intent",), "the ledger lost", TWICE),
    (("replay checksum",), "another cut on replay", TWICE),
    (("replay checksum",), "fewer tasks on replay", LOST),
    (("replay checksum",), "an empty task on replay", LOST),
    (("replay checksum",), "an older checkpoint", LOST),
    (("resolved reads",), "two runs, two batches", TWICE),
    (("abort reads",), "a batch job", UNDONE),
    (("abort fence",), "a batch job", UNDONE),
    (("sweep",), "fewer tasks on replay", HELD_UP),
    (("sweep what is listed",), "fewer tasks on replay", HELD_UP),
    (("sweep",), "an empty task on replay", HELD_UP),
    (("list before the fence",), "a batch job, recovered while it lives", UNDONE),
]

# Bounds at which the markers are needed for nothing else: no timeout, no second attempt of a task.
CALM = Scenario(runs=(ONE_TASK, ONE_TASK), lost_answers=1)
# In a stream what these prevent is repaired from the replay, by what the markers say.
REPAIRED = ["abort reads", "abort fence", "unsure raises"]

# What no safeguard helps against: the limits the documentation names.
LIMITS = [
    (
        "a ledger lost before the first batch is done: batch 0 is no sign that an entry ought to be there",
        Scenario(orderly=True, crashes=1, ledger_losses=1, first_batch_too=True, aborts=False),
        TWICE,
    ),
    (
        "a batch job with one transactional id per partition: a zombie attempt undoes what was decided",
        Scenario(runs=(STREAM,), kind="once", ids="partition", retries=1),
        UNDONE,
    ),
]


def without(name: str, *safeguards: str) -> Scenario:
    return dataclasses.replace(EXPLORATIONS[name], without=frozenset(safeguards))


def calm_without(*safeguards: str) -> Answer:
    return explore(question(dataclasses.replace(CALM, without=frozenset(safeguards))), MOST)


@pytest.mark.parametrize(("safeguards", "name", "verdict"), CAUGHT)
def test_taking_it_out_is_caught(safeguards, name, verdict):
    answer = explore(question(without(name, *safeguards)), MOST)
    assert answer.verdict is not None, answer
    assert verdict in answer.verdict
    assert answer.history


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_each_is_caught_alone(safeguard):
    assert any(taken == (safeguard,) for taken, _, _ in CAUGHT)


@pytest.mark.parametrize("safeguard", REPAIRED)
def test_a_stream_survives_without_it_but_only_by_its_markers(safeguard):
    assert calm_without(safeguard).verdict is None
    together = calm_without(safeguard, "marker")
    assert together.verdict is not None
    assert STUCK in together.verdict


def test_where_all_is_calm_the_markers_are_needed_for_nothing_else():
    assert calm_without("marker").verdict is None


@pytest.mark.parametrize(("limit", "scenario", "verdict"), LIMITS, ids=[limit for limit, _, _ in LIMITS])
def test_a_limit_is_one(limit, scenario, verdict):
    answer = explore(question(scenario), MOST)
    assert answer.verdict is not None, limit
    assert verdict in answer.verdict
