"""The requests that the broker has seen, for a test's assertions."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, overload

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.testing.broker.wire import ReceivedRequest

T = TypeVar("T")

REMEMBERED: Final = 100_000
_POLL_S: Final = 0.005
_CLOCK: Final = SystemClock()


class Log(Sequence[T]):
    """A bounded log. Written by the broker's thread, read by any. Beyond ``maxlen`` entries the oldest are dropped."""

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
        deadline = _CLOCK.now() + 1000 * timeout_s
        while len(found := find()) < count:
            if _CLOCK.now() > deadline:
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


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request, without its body. ``node``: the receiving node. ``connection``: counted from 1 over the broker's
    life."""

    api: str
    version: int
    node: int
    connection: int
    client_id: str | None


class RequestLog(Log[SeenRequest]):
    """The last 100,000 requests, oldest first. Written by the broker's thread, read by any."""

    def __init__(self) -> None:
        super().__init__(REMEMBERED)

    def add(self, request: ReceivedRequest) -> None:
        self._append(SeenRequest(request.api, request.version, request.node, request.connection, request.client_id))

    def of(self, api: str) -> list[SeenRequest]:
        """The requests of one API, by Kafka's name."""
        return [seen for seen in self if seen.api == api]

    def wait_for(self, api: str, count: int = 1, timeout_s: float = 60.0) -> list[SeenRequest]:
        """Waits until ``count`` requests of this API are in the log. Raises ``TimeoutError`` if they do not come."""
        return self._wait_for(lambda: self.of(api), count, timeout_s, f"{api} requests")
