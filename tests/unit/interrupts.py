"""An interrupt at each line: what Ctrl-C does, wherever it strikes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from opcode import opmap
from pathlib import Path
from types import FrameType, ModuleType
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


def may_strike(frame: FrameType, before: dict[FrameType, int]) -> bool:
    """Whether an interrupt can come at the line that ``frame`` has come to. ``before``: the last line of each frame.

    It cannot where a ``with`` block ends, because the interpreter leaves it and calls ``__exit__`` in one, nor at a
    bare ``try:``, which belongs to no block yet and does nothing.
    """
    last, before[frame] = before.get(frame, 0), frame.f_lineno
    first, end = _with_blocks(frame.f_code.co_filename).get(frame.f_lineno, (0, -1))
    return not (first <= last <= end or frame.f_code.co_code[frame.f_lasti] == _NOP)


class Interrupter:
    """Raises ``KeyboardInterrupt`` before the ``number``-th line that this thread comes to in ``modules``, once."""

    def __init__(self, modules: list[ModuleType], number: int) -> None:
        self._files = {module.__file__ for module in modules}
        self._left = number
        self._paused = 0
        self._before: dict[FrameType, int] = {}
        self.struck: str | None = None
        self.before_strike: Callable[[], object] = bool

    @contextmanager
    def armed(self) -> Iterator[None]:
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)

    def paused(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """``call`` without interrupts: it stands for what another thread does."""

        def unharmed(*arguments: Any) -> Any:
            self._paused += 1
            try:
                return call(*arguments)
            finally:
                self._paused -= 1

        return unharmed

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._paused or frame.f_code.co_filename not in self._files:
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event != "line":
            return self._line
        if not may_strike(frame, self._before):
            return self._line
        self._left -= 1
        if self._left == 0:
            self.struck = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
            self.before_strike()
            raise KeyboardInterrupt
        return self._line
