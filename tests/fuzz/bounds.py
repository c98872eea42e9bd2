"""Bounds of a run: steps of Python, memory, and CPU, each of which only a defect exceeds.

Steps are lines of Python, so that a machine's speed does not matter. CPU bounds what has no lines, such as a regular
expression: far more than any input needs.
"""

from __future__ import annotations

import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

STEPS: Final = 1_000_000
"""A module that is imported at its first use takes a tenth of them."""
STEPS_PER_BYTE: Final = 500
MEMORY: Final = 64 << 20
"""1 KiB of zstd may become 32 MiB at once."""
MEMORY_PER_BYTE: Final = 512
CPU_S: Final = 20.0


class ExcessError(AssertionError):
    """A run took more than its input explains."""


class _Stop(BaseException):  # no ``except Exception`` may keep it
    pass


def bounded(run: Callable[[], object], size: int) -> None:
    """Runs on the main thread, with as much as an input of ``size`` bytes may take. Raises ``ExcessError``."""
    most_steps, most_memory = STEPS + size * STEPS_PER_BYTE, MEMORY + size * MEMORY_PER_BYTE
    tracemalloc.start()
    try:
        with _stopped_after(CPU_S), _counted(most_steps):
            run()
        _, peak = tracemalloc.get_traced_memory()
    except _Stop as stop:
        raise ExcessError(str(stop)).with_traceback(stop.__traceback__) from None
    finally:
        tracemalloc.stop()  # Hypothesis allocates more than what it tries
    if peak > most_memory:
        raise ExcessError(f"{peak} bytes of memory at once for {size} bytes of input")


@contextmanager
def _counted(most: int) -> Iterator[None]:
    steps = 0

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > most:
            raise _Stop(f"more than {most} steps")
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _stopped_after(cpu_s: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stop(f"more than {cpu_s:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
