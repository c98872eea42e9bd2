"""A history in which nothing happened has no verdict, and the command says so."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from tests.histories.__main__ import main
from tests.histories.events import write_history
from tests.histories.evidence import lacking
from tests.histories.paper import ONCE, STREAM, correct_history
from tests.histories.planted import lose_a_row


@pytest.fixture
def events():
    """A history that proves something."""
    paper = correct_history(1)
    paper.tell("fault", name="broker killed", workload=STREAM, phase="begins")
    paper.tell("fault", name="broker killed", workload=STREAM, phase="ends")
    return paper.events()


@pytest.fixture
def judged(tmp_path, monkeypatch, capsys):
    """What ``--check`` says of a history, and its exit code."""

    def judged(events):
        file = tmp_path / "history.jsonl"
        write_history(events, file)
        monkeypatch.setattr(sys, "argv", ["histories", "--check", str(file)])
        with pytest.raises(SystemExit) as ended:
            main()
        return capsys.readouterr().out, int(ended.value.code)

    return judged


def without(events, kind, **fields):
    return [
        event
        for event in events
        if event.kind != kind or any(event.get(name) != value for name, value in fields.items())
    ]


def unseen(events, workload):
    """The history of readers that have seen no row of the workload."""
    return [event for event in events if event.kind != "seen" or event["topic"] != workload]


def passed_nothing(events):
    """The history of readers that saw rows, and say of none that they have everything below it."""
    return [
        replace(event, fields={**event.fields, "offset": 0}) if event.kind == "passed" else event for event in events
    ]


def without_the_last_reader(events):
    """The history without the one that reads from the start when everything is over. The other one reads as late."""
    left = without(without(events, "seen", reader="fresh"), "passed", reader="fresh")
    first = next(event for event in left if event.kind == "seen")
    return [replace(first, at=0.5), *left]


def with_a_late_verdict(events):
    """The history with one that comes after all reads."""
    verdict = next(event for event in events if event.kind == "verdict")
    return [*events, replace(verdict, at=events[-1].at + 1)]


def with_a_checkpoint_noted_late(events):
    """Whoever looks into the checkpoints of queries may find the last batch after the last reader has begun."""
    noted = {"write": "stream/0", "by": "spark", "outcome": "committed", "error": ""}
    return [*events, replace(events[-1], kind="verdict", fields=noted, at=events[-1].at + 1)]


def ended(events, trouble):
    return [*events, replace(events[-1], kind="ended", fields={"trouble": trouble})]


def test_a_history_with_all_of_it_has_a_verdict(events, judged):
    assert lacking(events) == lacking(with_a_checkpoint_noted_late(events)) == ""
    told, code = judged(events)
    assert "no finding: the history keeps every promise" in told
    assert code == 0


@pytest.mark.parametrize(
    ("lose", "lacks"),
    [
        (lambda events: [], "it has no intent, and it has no verdict, and no task was handed a row, and no task has"),
        (lambda events: without(events, "intent"), "it has no intent"),
        (lambda events: without(events, "verdict"), "it has no verdict"),
        (lambda events: without(events, "fault"), "no fault has struck"),
        (lambda events: without(events, "fault", phase="ends"), "no fault has struck"),
        (lambda events: without(events, "seen"), "no read_committed reader has seen a row"),
        (lambda events: without(events, "seen", isolation="read_committed"), "no read_committed reader has seen a row"),
        (lambda events: unseen(events, ONCE), "no reader has seen a row of once"),
        (lambda events: without(events, "passed"), "no read_committed reader has passed a row"),
        (lambda events: without(events, "passed", isolation="read_committed"), "no read_committed reader has passed"),
        (passed_nothing, "no read_committed reader has passed a row"),
        (lambda events: without(events, "handed"), "no task was handed a row"),
        (lambda events: without(events, "reported"), "no task has reported"),
        (lambda events: without(events, "end"), "no transaction has an end"),
        (lambda events: without(events, "seen", isolation="read_uncommitted"), "no read_uncommitted reader has seen"),
        (without_the_last_reader, "no read_committed reader has begun after the last verdict"),
        (with_a_late_verdict, "no read_committed reader has begun after the last verdict"),
    ],
)
def test_a_history_that_lacks_something_has_no_verdict(events, judged, lose, lacks):
    left = lose(events)
    told, code = judged(left)
    assert f"NO VERDICT: this history proves nothing, because {lacks}" in " ".join(told.split())
    assert "keeps every promise" not in told
    assert code == 1


def test_a_history_of_a_run_that_ended_as_it_should_has_a_verdict(events, judged):
    """Older histories do not say how their run ended."""
    told, code = judged(ended(events, ""))
    assert "no finding: the history keeps every promise" in told
    assert code == 0


def test_a_history_of_a_run_that_ended_before_its_time_has_no_verdict(events, judged):
    told, code = judged(ended(events, "live does not come to the end"))
    assert "NO VERDICT: the run ended before its time: live does not come to the end" in " ".join(told.split())
    assert "keeps every promise" not in told
    assert code == 1


def test_what_a_run_that_ended_before_its_time_lacks_is_named_as_well(events):
    left = ended(without(events, "end"), "a broker did not start")
    assert lacking(left) == (
        "the run ended before its time: a broker did not start; this history proves nothing, because no transaction "
        "has an end"
    )


def test_each_exception_is_printed_with_its_count(events, judged):
    told, _ = judged(events)
    assert "exceptions that the documentation makes, and for which the checker kept silent:" in told
    assert "batches visible in part: the job is never repeated, and its driver died (once/" in told


def test_a_finding_ends_the_command_with_an_error(judged):
    paper = correct_history(1)
    paper.tell("fault", name="broker killed", workload=STREAM, phase="ends")
    told, code = judged(lose_a_row(paper))
    assert "FOUND rows lost" in told
    assert code == 1
