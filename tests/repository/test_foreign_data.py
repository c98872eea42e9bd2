"""Nothing that comes from the network or from a file is run: no pickle, no marshal, no eval."""

from __future__ import annotations

import ast

from tests.repository.files import PACKAGE

_RUNS = {"eval", "exec", "compile", "__import__"}
_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}
_LOADS = {"load", "loads", "Unpickler"}


def calls(tree: ast.AST) -> list[str]:
    """The calls that run what they are given."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in _RUNS:
            found.append(called.id)
        if isinstance(called, ast.Attribute) and called.attr in _LOADS and ast.unparse(called.value) in _MODULES:
            found.append(ast.unparse(called))
    return found


def imported(tree: ast.AST) -> list[str]:
    """The names by which a module of these would be called without the module's own."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in _MODULES]
    return [each.name for node in nodes for each in node.names]


def test_no_data_of_others_is_unpickled_or_evaluated() -> None:
    trees = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert not {path.name: found for path, tree in trees.items() if (found := calls(tree) + imported(tree))}


def test_the_search_finds_them() -> None:
    tree = ast.parse("import pickle\nfrom pickle import loads\npickle.loads(b'')\neval('1')")
    assert calls(tree) + imported(tree) == ["pickle.loads", "eval", "loads"]
