"""The requests the broker has seen, to assert on."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

from spark_kafka_sink.testing.broker.wire import Request

REMEMBERED: Final = 100_000
_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request, without its body. ``node`` received it, ``connection`` counts from 1 over the broker's life."""

    api: str
    version: int
    node: int
    connection: int
    client_id: str | None


class RequestLog(Sequence[SeenRequest]):
    """Oldest first, the last 100,000. Written by the broker's thread, read by any."""

    def __init__(self) -> None:
        self._seen: deque[SeenRequest] = deque(maxlen=REMEMBERED)
        self._lock = threading.Lock()

    def add(self, request: Request) -> None:
        seen = SeenRequest(request.api, request.version, request.node, request.connection, request.client_id)
        with self._lock:
            self._seen.append(seen)

    def of(self, api: str) -> list[SeenRequest]:
        """The requests of one API, by Kafka's name."""
        return [seen for seen in self if seen.api == api]

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()

    def wait_for(self, api: str, count: int = 1, timeout_s: float = 60.0) -> list[SeenRequest]:
        """Until ``count`` requests of this API are in the log; ``TimeoutError`` when they do not come."""
        deadline = time.monotonic() + timeout_s
        while len(seen := self.of(api)) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(seen)} of {count} {api} requests came within {timeout_s} s")
            time.sleep(_POLL_S)
        return seen

    def __len__(self) -> int:
        return len(self._seen)

    @overload
    def __getitem__(self, index: int) -> SeenRequest: ...
    @overload
    def __getitem__(self, index: slice) -> list[SeenRequest]: ...
    def __getitem__(self, index: int | slice) -> SeenRequest | list[SeenRequest]:
        return self._snapshot()[index]

    def __iter__(self) -> Iterator[SeenRequest]:
        return iter(self._snapshot())

    def _snapshot(self) -> list[SeenRequest]:
        with self._lock:
            return list(self._seen)
