"""What a producer takes of the process, and that it gives all of it back."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from tests.support.waiting import until

_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Footprint:
    threads: frozenset[str]
    arrow_bytes: int
    open_files: int

    @classmethod
    def now(cls, files: bool) -> Footprint:
        gc.collect()
        threads = frozenset(f"{thread.name} ({thread.ident})" for thread in threading.enumerate())
        return cls(threads, pa.total_allocated_bytes(), len(os.listdir("/dev/fd")) if files else 0)

    def within(self, before: Footprint) -> bool:
        """Nothing was added. What earlier tests left may go meanwhile."""
        grown = self.arrow_bytes > before.arrow_bytes or self.open_files > before.open_files
        return self.threads <= before.threads and not grown


@contextmanager
def nothing_leaks(files: bool = True) -> Iterator[None]:
    """No thread, allocated byte of Arrow or open file is left that was not there before.

    ``files`` False: where the test itself starts processes, which open some.
    """
    before = Footprint.now(files)
    yield
    until(lambda: Footprint.now(files), lambda after: after.within(before), f"before: {before}, after", _DEADLINE_S)
