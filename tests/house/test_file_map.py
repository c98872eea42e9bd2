"""Who looks for a file finds it in docs/ARCHITECTURE.md."""

from __future__ import annotations

from tests.house.repository import PACKAGE, ROOT


def test_every_module_is_on_the_map():
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    modules = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py" and PACKAGE / "testing" / "broker" not in path.parents
    ]
    missing = [
        str(path.relative_to(PACKAGE))
        for path in modules
        if f"`{path.name}`" not in page and not {"cli", "demo"} & set(path.parts)
    ]
    assert missing == []


def test_the_page_is_read_in_one_go():
    assert len((ROOT / "docs" / "ARCHITECTURE.md").read_text().splitlines()) <= 300
