"""What a run leaves out, and that it says so; the tables of histories."""

from __future__ import annotations

import sys
from argparse import Namespace

import pytest

from tests.histories.__main__ import _settings, main
from tests.histories.changes import ChangeError
from tests.histories.checker import checked
from tests.histories.events import LIVE, Event, write_history
from tests.histories.findings import Reason
from tests.histories.index import COMMITTED, History
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


def doubled(*faults):
    """A history of an at-least-once write that has doubled a row, and of these faults."""
    where = {"reader": LIVE, "isolation": COMMITTED, "topic": "control", "partition": 0}
    told = [
        ("workload", {"name": "control", "exactly_once": False, "repeats": True}),
        ("handed", {"write": "control/1", "task": 0, "attempt": "1-0", "rows": ["control/1/0"]}),
        *(("seen", {**where, "rows": [[offset, "control/1/0"]]}) for offset in (0, 1)),
        *(("fault", {"name": name, "workload": "control", "phase": phase}) for name, phase in faults),
    ]
    return [Event(at, at, "test", kind, fields) for at, (kind, fields) in enumerate(told)]


def test_tables_have_a_column_for_each_history(tmp_path, monkeypatch, capsys):
    struck = [(name, phase) for name in ("worker killed", "broker killed") for phase in ("begins", "ends")]
    first = doubled(("rights revoked", "begins"), ("rights revoked", "ends"))
    second = doubled(*struck, *struck[:2], ("disk full", "begins"), ("disk full", "missed"))
    write_history(first, tmp_path / "first")
    write_history(second, tmp_path / "second")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["histories", "--tables", "first", "second"])
    main()
    faults, exceptions, *gaps = [part.splitlines() for part in capsys.readouterr().out.strip().split("\n\n")]
    assert faults == [
        "| fault | first | second |",
        "|---|---:|---:|",
        "| broker killed | 0 | 1 |",
        "| worker killed | 0 | 2 |",
        "| rights revoked | 1 | 0 |",
    ]
    made = checked(History(first)).counts
    assert Reason.AT_LEAST_ONCE in made
    assert exceptions[0] == "| exception | first | second |"
    assert exceptions[2:] == [f"| {reason.value} | {count} | {count} |" for reason, count in made.items()]
    for name, table in zip(("first", "second"), gaps, strict=True):
        assert table[0] == f"| writes of {name} | longest, s | made of |"
        assert table[2:] == ["| `control` | 1 | 1 s until readers see the rows |"]
