"""Bounds of a run: steps of Python, memory, CPU and time, each of which only a defect exceeds.

Steps are lines of Python, so that a machine's speed does not matter. CPU bounds what has no lines, such as a regular
expression: far more than any input needs. A run that waits, or that C code never returns from, ends its process.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

STEPS: Final = 1_000_000
"""A module that is imported at its first use takes a tenth of them."""
STEPS_PER_BYTE: Final = 500
MEMORY: Final = 64 << 20
"""1 KiB of zstd may become 32 MiB at once."""
MEMORY_PER_BYTE: Final = 512
CPU_S: Final = 20.0
SILENT_S: Final = 200.0


class ExcessError(AssertionError):
    """A run took more than its input explains."""


class _Stop(BaseException):  # no ``except Exception`` may keep it
    pass


def bounded(run: Callable[[], object], size: int) -> None:
    """Runs on the main thread, with as much as an input of ``size`` bytes may take. Raises ``ExcessError``."""
    most_steps, most_memory = STEPS + size * STEPS_PER_BYTE, MEMORY + size * MEMORY_PER_BYTE
    steps = 0

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps > most_steps:
            raise _Stop(f"more than {most_steps} steps")
        return step

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stop(f"more than {CPU_S:g} s of CPU")

    tracer, handler = sys.gettrace(), signal.signal(signal.SIGVTALRM, stop)
    faulthandler.dump_traceback_later(SILENT_S, exit=True, file=sys.__stderr__)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    tracemalloc.start()
    sys.settrace(step)
    try:
        run()
        sys.settrace(tracer)
        _, peak = tracemalloc.get_traced_memory()
    except _Stop as stopped:
        raise ExcessError(str(stopped)).with_traceback(stopped.__traceback__) from None
    finally:
        sys.settrace(tracer)
        tracemalloc.stop()  # Hypothesis allocates more than what it tries
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        faulthandler.cancel_dump_traceback_later()
    if peak > most_memory:
        raise ExcessError(f"{peak} bytes of memory at once for {size} bytes of input")
