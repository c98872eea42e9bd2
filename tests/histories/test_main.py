"""What a run leaves out, and that it says so; the tables of histories."""

from __future__ import annotations

import sys
from argparse import Namespace

import pytest

from tests.histories.__main__ import _settings, main
from tests.histories.changes import ChangeError
from tests.histories.checker import checked
from tests.histories.events import write_history
from tests.histories.index import History
from tests.histories.planted import STREAM, correct_history
from tests.histories.workloads import NIGHTLY


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Those of a run with the workload ``nightly``, and what it said."""
    monkeypatch.setattr("tests.histories.__main__.copy_of_sink", lambda revision, folder: folder)
    monkeypatch.setattr("tests.histories.__main__.libfaketime", lambda: None)

    def settings(older=None, troubles=None):
        said = []
        arguments = Namespace(workloads=[NIGHTLY.name], older=older, upgrade=False, troubles=troubles)
        return *_settings(arguments, tmp_path, said.append), said

    return settings


def test_a_run_without_an_older_sink_says_how_to_give_one(settings):
    _, troubles, (line,) = settings()
    assert "older sink" not in troubles
    assert "neither a tag before this commit nor commit 83230854; --older REVISION" in line


def test_a_run_with_an_older_sink_and_one_that_needs_none_say_nothing_of_it(settings):
    _, troubles, said = settings(older="HEAD")
    assert "older sink" in troubles
    assert not said
    assert not settings(troubles=["broker killed"])[2]


def test_a_trouble_that_is_named_and_cannot_be_done_is_told(settings):
    with pytest.raises(ChangeError, match=r"This run cannot do what --troubles names: older sink\."):
        settings(troubles=["older sink"])


def test_tables_have_a_column_for_each_history(tmp_path, monkeypatch, capsys):
    drawn = {"first": ["rights revoked"], "second": ["worker killed", "broker killed", "worker killed"]}
    for name, faults in drawn.items():
        paper = correct_history(1)
        for fault in faults:
            paper.tell("fault", name=fault, workload=STREAM, phase="begins")
            paper.tell("fault", name=fault, workload=STREAM, phase="ends")
        paper.tell("fault", name="disk full", workload=STREAM, phase="missed")
        write_history(paper.events(), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["histories", "--tables", *drawn])
    main()
    faults, exceptions, *gaps = [part.splitlines() for part in capsys.readouterr().out.strip().split("\n\n")]
    assert faults[:2] == ["| fault | first | second |", "|---|---:|---:|"]
    by_group = ["| broker killed | 0 | 1 |", "| worker killed | 0 | 2 |", "| rights revoked | 1 | 0 |"]
    assert faults[2:] == by_group
    made = checked(History(paper.events())).counts
    assert exceptions[0] == "| exception | first | second |"
    assert exceptions[2:] == [f"| {reason.value} | {count} | {count} |" for reason, count in made.items()]
    for name, (head, _, *rows) in zip(drawn, gaps, strict=True):
        assert head == f"| writes of {name} | longest, s | made of |"
        assert len(rows) == 3
        assert "s until readers see the rows" in rows[0]
