"""An interrupt at each line: what Ctrl-C does, wherever it strikes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from opcode import opmap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_NOP = opmap["NOP"]


@cache
def _with_blocks(file: str) -> dict[int, tuple[int, int]]:
    """First line of each ``with`` statement, and those of its body."""
    tree = ast.parse(Path(file).read_text())
    return {
        node.lineno: (node.body[0].lineno, node.body[-1].end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
    }


@contextmanager
def traced(concerns: Callable[[CodeType], object], at: Callable[[FrameType], object]) -> Iterator[None]:
    """``at`` each line of code that ``concerns`` this and that this thread comes to, where an interrupt can come."""
    before: dict[FrameType, int] = {}

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line" and _may_strike(frame, before):
            at(frame)
        return line

    def call(frame: FrameType, event: str, arg: Any) -> Any:
        return line if concerns(frame.f_code) else None

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(None)


def _may_strike(frame: FrameType, before: dict[FrameType, int]) -> bool:
    """Whether an interrupt can come at the line that ``frame`` has come to. ``before``: the last line of each frame.

    It cannot where a ``with`` block ends, because the interpreter leaves it and calls ``__exit__`` in one, nor at a
    bare ``try:``, which belongs to no block yet and does nothing.
    """
    last, before[frame] = before.get(frame, 0), frame.f_lineno
    first, end = _with_blocks(frame.f_code.co_filename).get(frame.f_lineno, (0, -1))
    return not (first <= last <= end or frame.f_code.co_code[frame.f_lasti] == _NOP)
