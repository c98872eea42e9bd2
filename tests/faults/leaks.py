"""What a producer takes of the process, and that it gives all of it back."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

_DEADLINE_S = 5.0


@dataclass(frozen=True)
class Footprint:
    threads: frozenset[str]
    arrow_bytes: int
    open_files: int | None

    @classmethod
    def now(cls, files: bool) -> Footprint:
        gc.collect()
        threads = frozenset(f"{thread.name} ({thread.ident})" for thread in threading.enumerate())
        return cls(threads, pa.total_allocated_bytes(), len(os.listdir("/dev/fd")) if files else None)


@contextmanager
def nothing_leaks(files: bool = True) -> Iterator[None]:
    """Threads, Arrow's allocated bytes and open files are back to where they were.

    ``files`` False: where the test itself starts processes, which open some.
    """
    before = Footprint.now(files)
    yield
    deadline = time.monotonic() + _DEADLINE_S
    while (after := Footprint.now(files)) != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert after == before, f"before: {before}, after: {after}"
