"""The checker finds each fault in histories of a few events and in long random ones, and nothing in whole ones."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories import checker
from tests.histories.checker import check, checked
from tests.histories.events import Event, read_history, write_history
from tests.histories.faulty import FAULTY
from tests.histories.findings import Kind, Reason
from tests.histories.index import History
from tests.histories.paper import correct_history
from tests.histories.planted import FAULTS
from tests.histories.recorder import Recorder
from tests.histories.whole import EXCUSED, WHOLE

SEEDS = st.integers(0, 2**32)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_history_has_no_finding(name):
    said = checked(History(WHOLE[name]))
    assert said.findings == []
    assert said.counts == EXCUSED.get(name, {})


@pytest.mark.parametrize("name", FAULTY)
def test_a_planted_fault_is_found(name):
    kind, events = FAULTY[name]
    assert kind in {finding.kind for finding in check(events)}


def test_each_reason_to_look_away_is_in_a_whole_history():
    assert {reason for reasons in EXCUSED.values() for reason in reasons} == set(Reason)


def test_exceptions_are_counted_with_what_they_are_about():
    said = checked(History(WHOLE["a driver that dies between two EndTxns of a job that is not repeated"]))
    assert said.excused() == [f"     1 {Reason.TORN_AND_DIED.value} (job/1)"]


def test_each_kind_of_finding_is_planted():
    assert {kind for kind, _ in FAULTY.values()} == set(Kind) == set(FAULTS.values())


@given(SEEDS)
def test_a_correct_random_history_has_no_finding(seed):
    """What happens in one only by a documented exception is counted."""
    said = checked(History(correct_history(seed).events()))
    assert said.findings == []
    assert {
        Reason.TOLD_DECIDED,
        Reason.TOLD_UNKNOWN,
        Reason.LOGGED_DECIDED,
        Reason.OTHER_RUN,
        Reason.TORN_AND_REPAIRED,
        Reason.TORN_AND_TOLD,
        Reason.TORN_AND_DIED,
        Reason.TOPIC_DELETED,
        Reason.AT_LEAST_ONCE,
    } <= said.counts.keys()


@given(SEEDS, st.sampled_from(list(FAULTS)))
def test_a_fault_in_a_random_history_is_found(seed, fault):
    assert FAULTS[fault] in {finding.kind for finding in check(fault(correct_history(seed)))}


@given(SEEDS)
def test_a_history_is_read_as_it_was_written(seed):
    events = correct_history(seed).events()
    assert [Event.parse(event.line()) for event in events] == events


def test_files_of_several_processes_are_one_history(tmp_path):
    one, other = Recorder(tmp_path, "one"), Recorder(tmp_path, "other")
    for write in ("a/1", "a/2"):
        one("began", write=write)
        other("began", write=f"b{write}")
    events = read_history(tmp_path.glob("*.jsonl"))
    assert [event["write"] for event in events] == ["a/1", "ba/1", "a/2", "ba/2"]
    write_history(events, tmp_path / "all")
    assert read_history([tmp_path / "all"]) == events


def test_half_a_line_of_a_process_that_was_killed_is_left_out(tmp_path):
    Recorder(tmp_path, "one")("began", write="a/1")
    (file,) = tmp_path.glob("*.jsonl")
    file.write_text(file.read_text() + '{"at": 1, "wa')
    assert len(read_history([file])) == 1
    file.write_text('{"at": 1, "wa\n')
    with pytest.raises(ValueError, match="Unterminated string"):
        read_history([file])


def imports_of(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return found | {
        str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None
    }


def test_the_checker_imports_nothing_of_what_it_judges():
    """Neither it nor what it imports: the standard library, and files of this folder that keep to the same."""
    left, seen = [Path(checker.__file__)], set()
    while left:
        file = left.pop()
        for name in imports_of(file) - seen:
            seen.add(name)
            if name.startswith("tests."):
                assert name.startswith("tests.histories."), f"{file.name} imports {name}"
                left.append(ROOT / f"{name.replace('.', '/')}.py")
            else:
                assert name.split(".")[0] in sys.stdlib_module_names, f"{file.name} imports {name}"
    assert {"tests.histories.events", "tests.histories.index"} <= seen
    assert [(ROOT / folder / "__init__.py").read_text() for folder in ("tests", "tests/histories")] == ["", ""]
