"""What no file here may say, and what no code of the package may do with foreign data."""

from __future__ import annotations

import ast
import re

import pytest

from tests.repository.files import PACKAGE, ROOT, source_files

FORBIDDEN = {
    "a path of somebody's machine": r"/(?:work|tmp|home|Users)/\w",
    "an address of a package index or a mirror of one": (
        r"--(?:extra-)?index-url|--find-links|https?://[^\s\"'<>]*(?:/simple\b|pythonhosted|/maven2?\b|artifactory|nexus)"
    ),
    "how it was made": r"\b(?:prototypes?|A\.?I\.?|LLMs?|GPT|chatbot|copilot|TODO|FIXME|XXX)\b",
}

# A sentence says who does it.

# This file has to name what it looks for; Kafka's licence and locked requirements are not our words.
NOT_OUR_WORDS = {"LICENSE", "tests/repository/test_forbidden.py"}

# What runs the data that it is given.
RUNS = {"eval", "exec", "compile", "__import__"}
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
LOADS = {"load", "loads", "Unpickler"}


@pytest.mark.parametrize(("what", "pattern"), FORBIDDEN.items())
def test_no_file_holds(what, pattern):
    found = [
        f"{path}:{number}: {line.strip()[:120]}"
        for path in source_files()
        if str(path) not in NOT_OUR_WORDS
        for number, line in enumerate((ROOT / path).read_text(errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


def calls(tree: ast.AST) -> list[str]:
    """The calls that run what they are given."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in RUNS:
            found.append(called.id)
        if isinstance(called, ast.Attribute) and called.attr in LOADS and ast.unparse(called.value) in MODULES:
            found.append(ast.unparse(called))
    return found


def imported(tree: ast.AST) -> list[str]:
    """The names by which a module of these would be called without the module's own."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in MODULES]
    return [each.name for node in nodes for each in node.names]


def test_nothing_from_the_network_or_a_file_is_unpickled_or_evaluated():
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert not {path.name: found for path, tree in trees.items() if (found := calls(tree) + imported(tree))}


def test_the_search_finds_what_would_run_data():
    tree = ast.parse("import pickle\nfrom pickle import loads\npickle.loads(b'')\neval('1')")
    assert calls(tree) + imported(tree) == ["pickle.loads", "eval", "loads"]
