"""What a run leaves out, and that it says so."""

from __future__ import annotations

from argparse import Namespace

import pytest

from tests.histories.__main__ import _settings
from tests.histories.changes import ChangeError
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
