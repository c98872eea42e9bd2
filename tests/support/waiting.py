"""Waits of tests: they end as soon as what they wait for is there, and only a defect lets them reach their deadline.

Tests read the clock here only (``tests/repository/test_clocks.py``): a figure in seconds says how busy the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0
"""Below the timeout of a test, so that the message of the wait is what a reader sees."""


def until(ask: Callable[[], T], accepts: Callable[[T], object], what: str = "", deadline_s: float = DEADLINE_S) -> T:
    """The first answer of ``ask`` that ``accepts`` holds for; AssertionError with ``what`` after the deadline."""
    deadline = time.monotonic() + deadline_s
    pause_s = 0.0005
    while not accepts(answer := ask()):
        assert time.monotonic() < deadline, (
            f"waited {deadline_s:g} s in vain, {what or 'and this is the last answer'}: {answer}"
        )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)
    return answer


def eventually(condition: Callable[[], object], what: str = "", deadline_s: float = DEADLINE_S) -> None:
    """Return when ``condition`` holds; AssertionError with ``what`` if it does not before the deadline."""
    until(condition, bool, what, deadline_s)


def holds_for(condition: Callable[[], object], seconds: float) -> bool:
    """Whether ``condition`` holds all the time: what must not happen has this long to happen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not condition():
            return False
        time.sleep(0.02)
    return bool(condition())


@contextmanager
def lasts(seconds: float | Callable[[], float]) -> Iterator[None]:
    """Fails if the block takes less than ``seconds``, the pause that is tested. A busy machine only adds to it.

    A function is called at the end of the block.
    """
    began = time.monotonic()
    yield
    lasted = time.monotonic() - began
    least = seconds() if callable(seconds) else seconds
    assert lasted >= least, f"it took {lasted:.3f} s, less than {least:g} s"


def is_of_today(epoch_s: float) -> bool:
    """Whether a clock said so in the last day: a real time, neither 0 nor one that a client has given."""
    return 0 <= time.time() - epoch_s + 60 < 86_400


def cpu_ratio(run: Callable[[], object], beside: Callable[[], object], repeats: int = 5) -> float:
    """How many times the CPU of ``beside`` a ``run`` takes on this thread, by the quickest of each, run in turn."""
    readings = [(measured_s(run, time.thread_time), measured_s(beside, time.thread_time)) for _ in range(repeats)]
    return min(each[0] for each in readings) / min(each[1] for each in readings)


def measured_s(run: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one run, to be compared with those of another run only."""
    began = clock()
    run()
    return clock() - began
