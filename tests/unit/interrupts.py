"""An interrupt wherever Python runs a signal handler: as a function begins, after a call, at a backward jump."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dis import get_instructions
from functools import cache
from types import CodeType, FrameType
from typing import Any


@cache
def _points(code: CodeType) -> frozenset[int]:
    """The instructions that Python looks for signals before, or as it has run the one before."""
    points, after_call = set(), False
    for instruction in get_instructions(code):
        if after_call or "BACKWARD" in instruction.opname:
            points.add(instruction.offset)
        after_call = instruction.opname.startswith("CALL")
    return frozenset(points)


@contextmanager
def traced(concerns: Callable[[CodeType], object], at: Callable[[FrameType], object]) -> Iterator[None]:
    """``at`` each point of code that ``concerns`` this and that this thread comes to. It may raise, once."""

    def step(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            at(frame)
        return step

    def call(frame: FrameType, event: str, arg: Any) -> Any:
        if not concerns(frame.f_code):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        at(frame)
        return step

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)
