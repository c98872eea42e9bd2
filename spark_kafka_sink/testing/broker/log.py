"""``Log``: what a broker has seen, oldest first, to assert on."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar, overload

T = TypeVar("T")

_POLL_S: Final = 0.005


class Log(Sequence[T]):
    """Written by the broker's thread, read by any. Beyond ``maxlen`` entries the oldest are dropped."""

    def __init__(self, maxlen: int | None = None) -> None:
        self._entries: deque[T] = deque(maxlen=maxlen)
        self._lock = threading.Lock()

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def _append(self, entry: T) -> None:
        with self._lock:
            self._entries.append(entry)

    def _wait_for(self, find: Callable[[], list[T]], count: int, timeout_s: float, what: str) -> list[T]:
        deadline = time.monotonic() + timeout_s
        while len(found := find()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {count} {what} came within {timeout_s} s")
            time.sleep(_POLL_S)
        return found

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._snapshot()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._snapshot())

    def _snapshot(self) -> list[T]:
        with self._lock:
            return list(self._entries)
