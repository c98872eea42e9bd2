"""What is remembered of a node across its connections (Java: ``ClusterConnectionStates``)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.connection import Connection, ConnectionState


@dataclass(slots=True)
class NodeState:
    """A node, its connection if there is one, and when the next may be tried. All times are monotonic ms.

    ``failures`` counts the connections in a row that ended before a request was answered on them, ``setup_failures``
    those that could not even be established. ``warned`` while the present series of failures has been logged.
    """

    node: Node
    connection: Connection | None = None
    failures: int = 0
    setup_failures: int = 0
    last_attempt_at: float = -math.inf
    next_attempt_at: float = -math.inf
    throttled_until: float = -math.inf
    last_error: str | None = None
    warned: bool = False

    def moved_to(self, node: Node) -> None:
        """The node has another address: what was learnt of the old one says nothing about it."""
        self.node = node
        self.failed_series_ended()
        self.setup_failures = 0
        self.next_attempt_at = -math.inf

    def failed(self, error: KafkaError, reconnect_backoff: ExponentialBackoff, now: float) -> None:
        self.last_error = str(error)
        self.next_attempt_at = now + reconnect_backoff.delay(self.failures)
        self.failures += 1

    def failed_series_ended(self) -> None:
        self.failures = 0
        self.last_error = None
        self.warned = False

    def can_send(self, max_in_flight: int, now: float) -> bool:
        return self.connection is not None and now >= self.throttled_until and self.connection.can_send(max_in_flight)

    def ready_delay(self, now: float) -> float:
        """Milliseconds until time alone can make a difference, ``inf`` when only an event can."""
        if self.connection is None:
            return max(0.0, self.next_attempt_at - now)
        if self.connection.stage is ConnectionState.READY and self.throttled_until > now:
            return self.throttled_until - now
        return math.inf
