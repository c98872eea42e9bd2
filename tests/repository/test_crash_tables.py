"""docs/exactly-once-protocol.md says what was tested, crash by crash: its tests are there, and none is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.model.bounds import LARGE, SMALL
from tests.repository.files import ROOT

HEADING = "## What was tested, crash by crash"
# The tests that are there for crashes alone: a new one belongs into the tables.
CRASHES = "tests/faults/exactly_once/test_*.py"


class Row(NamedTuple):
    what: str
    tests: list[tuple[str, str]]
    on: str


def section() -> str:
    page = (ROOT / "docs" / "exactly-once-protocol.md").read_text()
    assert HEADING in page
    return page.split(HEADING, 1)[1].split("\n## ", 1)[0]


def cells() -> Iterator[list[str]]:
    for line in section().splitlines():
        if line.startswith("| ") and not line.startswith(("| what ", "| short ")):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def files() -> dict[str, tuple[str, str]]:
    """Short name → the file, and on what it runs."""
    return {short.strip("`"): (file.strip("`"), on) for short, file, on in (row for row in cells() if len(row) == 3)}


def rows() -> list[Row]:
    found = [
        Row(what, re.findall(r"`([a-z]+)::([^`]+)`", tests), on)
        for what, _, tests, on in (row for row in cells() if len(row) == 4)
    ]
    assert found
    return found


def names_in(file: str) -> set[str]:
    if file == "tests/model/bounds.py":
        return {*SMALL, *LARGE}
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_line_of_the_tables_is_read():
    assert {len(row) for row in cells()} == {3, 4}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_the_tests_of_a_row_are_there_and_run_on_what_it_says(row):
    known = files()
    missing = [f"{short}::{name}" for short, name in row.tests if name not in names_in(known[short][0])]
    assert row.tests, "the row names no test"
    assert not missing, f"docs/exactly-once-protocol.md names tests that are not there: {missing}"
    brokers = dict.fromkeys(each for short, _ in row.tests for each in known[short][1].split(", "))
    assert set(row.on.split(", ")) == set(brokers)


def test_no_test_of_a_crash_is_left_out():
    short = {file: name for name, (file, _) in files().items()}
    named = {each for row in rows() for each in row.tests}
    left_out = [
        f"{path.name}::{name}"
        for path in sorted(ROOT.glob(CRASHES))
        for name in sorted(names_in(str(path.relative_to(ROOT))))
        if (short.get(str(path.relative_to(ROOT))), name) not in named
    ]
    assert not left_out, f"add them to the tables of docs/exactly-once-protocol.md ({HEADING!r}): {left_out}"
