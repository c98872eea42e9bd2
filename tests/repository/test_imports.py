"""No two files import each other, directly or through others, and the layers are those of the page.

``lint-imports`` checks the layers themselves.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.repository.architecture import quoted, table
from tests.repository.files import PACKAGE, ROOT

Graph = dict[str, set[str]]


def _module(path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def parsed() -> tuple[dict[str, ast.Module], dict[str, ast.Module]]:
    """The modules, and the pages of packages."""
    files = {_module(path): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
    modules = {name: tree for name, tree in files.items() if not name.endswith(".__init__")}
    return modules, {name.removesuffix(".__init__"): files[name] for name in files.keys() - modules.keys()}


def names_imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(where from, name) of every import, wherever it stands: in functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def home(package: str, name: str) -> str | None:
    """The module that ``from package import name`` reads: the page of a package only repeats names of modules."""
    modules, pages = parsed()
    if package in modules:
        return package
    if f"{package}.{name}" in modules:
        return f"{package}.{name}"
    for origin, imported in names_imported(pages[package]) if package in pages else ():
        if imported == name:
            return home(origin, name)
    return None


def imports() -> Graph:
    modules, _ = parsed()
    found = {
        module: {target for package, name in names_imported(tree) if (target := home(package, name))}
        for module, tree in modules.items()
    }
    return {module: targets - {module} for module, targets in found.items()}


def reach(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def circles(graph: Graph) -> set[frozenset[str]]:
    """Files that reach each other, one set for each knot of them."""
    reached = {module: reach(graph, module) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }


def test_no_files_import_each_other():
    found = ["\n    ".join(sorted(circle)) for circle in circles(imports())]
    assert not found, "these files import each other in a circle:\n    " + "\n\n    ".join(found)


def test_a_circle_is_found_also_around_a_third_file():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert circles({"a": {"b"}, "b": set()}) == set()


def test_a_name_of_a_package_is_that_of_the_module_which_has_it():
    assert home("spark_kafka_sink.common.config", "ProducerConfig") == "spark_kafka_sink.common.config.producer_config"
    assert home("spark_kafka_sink", "SendReceipt") == "spark_kafka_sink.producer.append.receipt"


def layers_of_the_import_rules() -> tuple[list[set[str]], list[set[str]]]:
    """The package's layers from the top, then those inside its packages with the package in front."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    outer: list[set[str]] = []
    inner: list[set[str]] = []
    for contract in (each for each in contracts if each["type"] == "layers"):
        (container,) = contract["containers"]
        folder = Path(*container.split(".")[1:])
        for layer in contract["layers"]:
            names = {str(folder / name) for name in re.split(r" [|:] ", layer)}
            if folder == Path():
                outer.append(names)
            elif packages := {name for name in names if (PACKAGE / name).is_dir()}:
                inner.append(packages)
    return outer, inner


def test_the_page_has_the_layers_of_the_import_rules():
    rows = [
        {package.removesuffix("/").removesuffix(".py") for package in quoted(row[0])}
        for row in table("## Packages and layers")
    ]
    outer, inner = layers_of_the_import_rules()
    assert rows == outer + inner
