"""The requests the broker has seen, to assert on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.testing.broker.log import Log
from spark_kafka_sink.testing.broker.wire import Request

REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """One request, without its body. ``node`` received it, ``connection`` counts from 1 over the broker's life."""

    api: str
    version: int
    node: int
    connection: int
    client_id: str | None


class RequestLog(Log[SeenRequest]):
    """Oldest first, the last 100,000. Written by the broker's thread, read by any."""

    def __init__(self) -> None:
        super().__init__(REMEMBERED)

    def add(self, request: Request) -> None:
        self._append(SeenRequest(request.api, request.version, request.node, request.connection, request.client_id))

    def of(self, api: str) -> list[SeenRequest]:
        """The requests of one API, by Kafka's name."""
        return [seen for seen in self if seen.api == api]

    def wait_for(self, api: str, count: int = 1, timeout_s: float = 60.0) -> list[SeenRequest]:
        """Until ``count`` requests of this API are in the log; ``TimeoutError`` when they do not come."""
        return self._wait_for(lambda: self.of(api), count, timeout_s, f"{api} requests")
