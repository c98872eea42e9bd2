"""No test compares a time that it has measured with a number: such a figure says how busy the machine is.

So a function of a test that reads a clock compares nothing in its assertions. Tests measure ratios and pauses
(``tests/support/waiting.py``), count work, or turn a manual clock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.repository.files import ROOT

CLOCKS = frozenset(
    f"{name}{unit}"
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")
    for unit in ("", "_ns")
) | {"getrusage", "times"}
MODULES = frozenset({"time", "os", "resource"})
WAITING = "tests/support/waiting.py"
"""Has the deadlines of waits and the measurements whose ratios tests compare."""

FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py"))


def reads_a_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr in CLOCKS and isinstance(called.value, ast.Name) and called.value.id in MODULES
    return isinstance(called, ast.Name) and called.id in CLOCKS - {"time", "times"}


def assertions_of_time(source: str) -> Iterator[int]:
    """Lines of the assertions that compare anything in a function that reads a clock."""
    for function in ast.walk(ast.parse(source)):
        nodes = list(ast.walk(function)) if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else []
        if any(map(reads_a_clock, nodes)):
            asserted = [node for node in nodes if isinstance(node, ast.Assert)]
            yield from (
                node.lineno for node in asserted if any(isinstance(each, ast.Compare) for each in ast.walk(node))
            )


@pytest.mark.parametrize(
    "asserts",
    [
        "assert time.monotonic() - began < 2",
        "took = time.perf_counter() - began; assert took < LIMIT",
        "taken = []; taken.append(thread_time_ns() - began); assert min(taken) < 2.0",
        "deadline = time.monotonic() + 5\n    while not condition(): assert time.monotonic() < deadline",
        "assert (slow.hits, time.process_time() - began >= 0.08) == (2, True)",
    ],
)
def test_it_finds_each_way_to_compare_a_time(asserts):
    assert [*assertions_of_time(f"def test(began):\n    {asserts}\n")] != []


@pytest.mark.parametrize("file", [file for file in FILES if file != WAITING])
def test_no_assertion_compares_a_measured_time(file):
    lines = sorted(set(assertions_of_time((ROOT / file).read_text())))
    assert lines == [], f"{file}: see {WAITING} for what to do instead"
