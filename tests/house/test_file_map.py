"""docs/ARCHITECTURE.md names every file in the row of its room, and the one file to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.architecture import PAGE, quoted, table
from tests.house.repository import PACKAGE

GROUND_FLOOR = "the ground floor"
# A file per command: the map does not name each.
ALIKE = "cli/"

# TestBroker's rooms are described in its own docstrings.
ROOMS = {
    f"{init.parent.relative_to(PACKAGE)}/": init.parent
    for init in sorted(PACKAGE.rglob("*/__init__.py"))
    if "broker" not in init.parent.relative_to(PACKAGE).parts
}
MAP = {row[0].strip("`"): row for row in table("## File map")}


def modules(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.py")} - {"__init__.py"}


def test_every_room_has_a_row():
    assert {*ROOMS, GROUND_FLOOR} == set(MAP)


@pytest.mark.parametrize("room", MAP)
def test_a_room_has_one_file_to_begin_with(room):
    (first,) = quoted(MAP[room][1])
    assert first in modules(ROOMS.get(room, PACKAGE))


@pytest.mark.parametrize("room", MAP)
def test_every_module_is_in_the_row_of_its_room(room):
    there = modules(ROOMS.get(room, PACKAGE))
    named = {name for cell in MAP[room][1:] for name in quoted(cell) if name.endswith(".py")}
    assert sorted(named - there) == [], "the row names files that are not there"
    assert room == ALIKE or sorted(there - named) == [], "the row leaves files out"


def test_the_page_is_read_in_one_go():
    assert len(PAGE.read_text().splitlines()) <= 320
