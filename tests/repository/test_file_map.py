"""docs/ARCHITECTURE.md names every file in the row of its package, and the one file to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository.architecture import PAGE, quoted, table
from tests.repository.files import PACKAGE

THE_PACKAGE = "the package itself"
# A file per command: the map does not name each.
ALIKE = "tools/cli/"


def modules(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.py")} - {"__init__.py"}


# TestBroker's packages are described in its own docstrings.
PACKAGES = {
    f"{init.parent.relative_to(PACKAGE)}/": init.parent
    for init in sorted(PACKAGE.rglob("*/__init__.py"))
    if "broker" not in init.parent.relative_to(PACKAGE).parts and modules(init.parent)
}
MAP = {row[0].strip("`"): row for row in table("## File map")}


def test_every_package_has_a_row():
    assert {*PACKAGES, THE_PACKAGE} == set(MAP)


@pytest.mark.parametrize("package", MAP)
def test_a_package_has_one_file_to_begin_with(package):
    (first,) = quoted(MAP[package][1])
    assert first in modules(PACKAGES.get(package, PACKAGE))


@pytest.mark.parametrize("package", MAP)
def test_every_module_is_in_the_row_of_its_package(package):
    there = modules(PACKAGES.get(package, PACKAGE))
    named = {name for cell in MAP[package][1:] for name in quoted(cell) if name.endswith(".py")}
    assert sorted(named - there) == [], "the row names files that are not there"
    assert package == ALIKE or sorted(there - named) == [], "the row leaves files out"


def test_the_page_is_read_in_one_go():
    assert len(PAGE.read_text().splitlines()) <= 330
