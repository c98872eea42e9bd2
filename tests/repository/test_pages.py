"""Readers find every page and example; links lead to files; the code, tests and errors that pages name are there."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from tests.model.bounds import LARGE, SMALL
from tests.repository.files import ROOT, source_files

LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*)\]\((?P<to>[^)\s#]*)(?:#[^)\s]*)?\)")
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
WITH_LINKS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MADE_BY_THE_SITE = {"index.md", "changes.md", "contributing.md", "security-policy.md", "examples/README.md"}
DECISIONS = sorted(f"adr/{path.name}" for path in (ROOT / "docs/adr").glob("*.md"))


def test_links_lead_from_readme_to_every_page():
    found, unread = set[Path](), [ROOT / "README.md"]
    while unread:
        page = unread.pop()
        found.add(page)
        links = {(page.parent / link["to"]).resolve() for link in LINK.finditer(page.read_text()) if link["to"]}
        unread += [link for link in links - found if link.suffix == ".md" and link.exists()]
    assert [page for page in [*PAGES, *DECISIONS] if ROOT / "docs" / page not in found] == []


def test_the_navigation_has_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1]
    listed = set(re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE))
    assert listed == {*PAGES, *DECISIONS, *MADE_BY_THE_SITE}


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_to_a_file(page):
    links = [found["to"] for found in LINK.finditer(page.read_text())]
    missing = [to for to in links if to and not re.match(r"https?:|mailto:", to) and not (page.parent / to).exists()]
    assert not missing


SOURCES = sorted(source_files())

# -- examples --

EXAMPLES = [
    path
    for path in SOURCES
    if path.parts[0] == "examples" and path.parts[1] != "demo" and path.name not in ("README.md", "__init__.py")
]


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_the_table_of_examples_has_each_file(path):
    assert f"({path.relative_to('examples')})" in (ROOT / "examples/README.md").read_text()


def test_the_notebook_has_outputs_and_no_error():
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert len(outputs) >= 4
    assert [output for output in outputs if output["output_type"] == "error"] == []


# -- code and tests that pages name --

CODE = {str(path): ROOT / path for path in SOURCES if path.suffix == ".py"}
PROGRAMS_OF_READERS = {"quickstart.md"}


@cache
def names_of_tests() -> set[str]:
    return {
        name
        for file, path in CODE.items()
        if file.startswith("tests/")
        for name in [path.stem, *re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)]
    }


@cache
def names_of(file: str) -> set[str]:
    """Classes, their methods, functions and constants of a file."""
    names: set[str] = set()
    for node in ast.parse(CODE[file].read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def is_there(place: str) -> bool:
    """``place``: a file, or ``file:name``. A page may leave out folders at the front."""
    path, _, name = place.partition(":")
    files = [file for file in CODE if f"/{file}".endswith(f"/{path}")]
    return any(not name or name in names_of(file) for file in files)


def test_the_table_of_kafkas_classes_names_classes_that_are_there():
    table = (ROOT / "docs/differences.md").read_text().split("\n## Kafka's classes here\n", 1)[1]
    rows = re.findall(r"^\| [^|]*`[^|]* \| (?P<here>[^|]*`[^|]*) \| `(?P<package>\w+)/` \|", table, re.MULTILINE)
    assert len(rows) > 20
    for here, package in rows:
        files = [file for file in CODE if file.startswith(f"spark_kafka_sink/{package}/")]
        names = set[str]().union(*map(names_of, files))
        assert set(re.findall(r"`(\w+)`", here)) <= names


@pytest.mark.parametrize(
    "page", [page for page in WITH_LINKS if page.name not in PROGRAMS_OF_READERS], ids=lambda page: page.name
)
def test_the_code_and_the_tests_that_a_page_names_are_there(page):
    text = page.read_text()
    assert [place for place in re.findall(r"`([\w/.-]+\.py(?::[\w.]+)?)`", text) if not is_there(place)] == []
    assert [name for name in re.findall(r"`(?:\w+::)?(test_\w+)[`.\[]", text) if name not in names_of_tests()] == []
    assert set(re.findall(r"`model::([^`]+)`", text)) <= {*SMALL, *LARGE}


# -- the table of changes in CONTRIBUTING --

PACKAGE_FILE = re.compile(r"`(spark_kafka_sink/(?!testing/)[\w/]+(?:\.py|/))`")
NAME = re.compile(r"`(_?[A-Za-z]\w*(?:\.\w+)?)`")
NOT_OURS = {"check", "mkdocs.yml", "output.writes"}


def changes() -> dict[str, tuple[str, str]]:
    """Change → where it goes, and what tests it."""
    table = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Where to add what\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines() if row.startswith("| ")]
    return {name: (where, tested) for name, where, tested in rows[1:]}


@cache
def all_names_of(file: str) -> set[str]:
    """The names of a file, and the names within its classes without the class."""
    tree = ast.parse(CODE[file].read_text())
    members = {each.target.id for each in ast.walk(tree) if isinstance(each, ast.AnnAssign)
               and isinstance(each.target, ast.Name)}  # fmt: skip
    imported = {name.name for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) for name in each.names}
    return names_of(file) | members | imported


@pytest.mark.parametrize("change", changes())
def test_the_table_of_changes_names_what_is_there(change):
    where, tested = changes()[change]
    places = re.findall(r"`((?:spark_kafka_sink|tests|docs|conf)/[\w/.-]+)`", f"{where} {tested}")
    assert [place for place in places if not (ROOT / place).exists()] == []
    named = PACKAGE_FILE.findall(where)
    files = [
        file for file in CODE for place in named if file == place or (place.endswith("/") and file.startswith(place))
    ]
    known = set[str]().union(NOT_OURS, *map(all_names_of, files))
    methods = set[str]().union(*(names_of(file) for file in CODE if file.startswith("spark_kafka_sink/")))
    known |= {method for method in methods if method.partition(".")[0] in known}
    assert [name for name in NAME.findall(where) if name not in known] == []


@pytest.mark.parametrize("change", changes())
def test_a_change_needs_at_most_three_files(change):
    where, _ = changes()[change]
    assert len(set(PACKAGE_FILE.findall(where))) <= 3
