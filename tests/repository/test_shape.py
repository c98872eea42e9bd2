"""A file can be read in one go, a function fits a screen, a long list of parameters is a dataclass."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository.files import PACKAGE, ROOT

FILE_LINES = 700
FUNCTION_LINES = 60
PARAMETERS = 6

# "path::function" or "path" that may be longer. Stays empty.
EXCEPTIONS: frozenset[str] = frozenset()

MODULES = sorted(path.relative_to(ROOT) for path in PACKAGE.rglob("*.py"))


def is_init_of_fields(node: ast.stmt, of: ast.ClassDef) -> bool:
    """The ``__init__`` that ``dataclass`` would generate: its parameters are the fields."""
    fields = [
        each.target.id for each in of.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    return isinstance(node, ast.FunctionDef) and node.name == "__init__" and parameters(node) == fields


def functions(module: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(ast.parse((ROOT / module).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{module}::{node.name}", node


def lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    return [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_file_can_be_read_in_one_go(module):
    assert str(module) in EXCEPTIONS or len((ROOT / module).read_text().splitlines()) <= FILE_LINES


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_functions_fit_a_screen_and_take_few_parameters(module):
    long = [name for name, node in functions(module) if lines(node) > FUNCTION_LINES]
    tree = ast.parse((ROOT / module).read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    inits = {node.lineno for each in classes for node in each.body if is_init_of_fields(node, each)}
    wide = [name for name, node in functions(module) if len(parameters(node)) > PARAMETERS and node.lineno not in inits]
    assert set(long + wide) <= EXCEPTIONS
