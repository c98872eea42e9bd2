"""Which nodes take what waits for them (Kafka: ``RecordAccumulator.updateNodeLatencyStats``, KIP-794)."""

from __future__ import annotations

from spark_kafka_sink.model import NO_LEADER


class NodeAvailability:
    """``timeout_ms``: ``partitioner.availability.timeout.ms``; 0 makes no node unavailable.

    ``unavailable`` are the ids of nodes that have not taken what waited for them for longer than that, and
    ``NO_LEADER``: callers read it on any thread, the sender thread replaces it.
    """

    def __init__(self, timeout_ms: float) -> None:
        self.unavailable = frozenset({NO_LEADER})
        self._timeout_ms = timeout_ms
        self._waiting_since: dict[int, float] = {}

    def note(self, node_id: int, takes: bool, now: float) -> None:
        """Something waits for this node; ``takes``: a request can be sent to it now."""
        if takes:
            self._waiting_since.pop(node_id, None)
            if node_id in self.unavailable:
                self.unavailable -= {node_id}
        elif self._timeout_ms and now - self._waiting_since.setdefault(node_id, now) > self._timeout_ms:
            self.unavailable |= {node_id}
