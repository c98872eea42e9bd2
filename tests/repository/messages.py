"""The texts of errors, log lines and options, wherever in the package they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

LEAST_WORDS = 3


def texts_in(*folders: Path) -> Iterator[str]:
    """Each text that is no docstring, with ``{}`` for what is put in."""
    for folder in folders:
        for path in folder.rglob("*.py"):
            yield from _texts(ast.parse(path.read_text()))


def _texts(tree: ast.Module) -> Iterator[str]:
    passed_by: set[ast.AST] = set()
    for node in ast.walk(tree):
        if node in passed_by:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_by.add(node.value)  # a docstring
        elif isinstance(node, ast.JoinedStr):
            passed_by.update(node.values)
            yield "".join(
                each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else "{}"
                for each in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
