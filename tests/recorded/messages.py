"""The texts of errors, log lines and options, wherever in the package they stand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.repository.files import PACKAGE

_LEAST_WORDS = 3


def messages() -> list[str]:
    """Each text of three words or more that is no docstring, with ``{}`` for what is put in."""
    found = {
        " ".join(text.split())
        for path in PACKAGE.rglob("*.py")
        for text in texts(ast.parse(path.read_text()))
        if len(text.split()) >= _LEAST_WORDS
    }
    return sorted(found)


def texts(tree: ast.Module) -> Iterator[str]:
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
