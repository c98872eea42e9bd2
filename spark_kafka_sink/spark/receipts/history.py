"""The last hours of a query, summed up from its receipts in equal spans of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.exactly_once.receipts import WriteReceipt


@dataclass(slots=True)
class Span:
    """The writes that ended in one span of time. ``latency_ms``: the sum of all requests' latencies."""

    rows: int = 0
    requests: int = 0
    latency_ms: float = 0.0
    latency_max_ms: float = 0.0
    retries: int = 0
    throttle_ms: float = 0.0
    dead_letters: int = 0

    @property
    def latency_avg_ms(self) -> float:
        return self.latency_ms / self.requests if self.requests else 0.0

    def add(self, receipt: WriteReceipt) -> None:
        self.rows += receipt.count
        figures = receipt.figures
        if figures is not None:
            self.requests += figures.requests
            self.latency_ms += figures.latency_avg_ms * figures.requests
            self.latency_max_ms = max(self.latency_max_ms, figures.latency_max_ms)
            self.retries += figures.retries
            self.throttle_ms += figures.throttle_ms
            self.dead_letters += sum(rows for _, rows in figures.dead_letters)


@dataclass(slots=True)
class QueryHistory:
    """``began`` and ``ended``: epoch ms, the limits of all spans together."""

    query: str
    began: int
    ended: int
    spans: list[Span]
    total: Span = field(default_factory=Span)
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    last_batch: int = -1
    last_write: int = 0

    @property
    def span_seconds(self) -> float:
        return (self.ended - self.began) / len(self.spans) / 1000.0

    def add(self, receipt: WriteReceipt) -> None:
        """A receipt that ended within the history."""
        index = (receipt.ended_at - self.began) * len(self.spans) // max(self.ended - self.began, 1)
        self.spans[min(index, len(self.spans) - 1)].add(receipt)
        self.total.add(receipt)
        if receipt.count:
            partition = TopicPartition(receipt.topic, receipt.partition)
            self.partitions[partition] = self.partitions.get(partition, 0) + receipt.count
        self.last_batch = max(self.last_batch, receipt.batch)
        self.last_write = max(self.last_write, receipt.ended_at)

    def skew(self) -> dict[str, float]:
        """Topic → rows of its largest partition by the mean of the partitions with rows: 1.0 is even."""
        topics: dict[str, list[int]] = {}
        for partition, rows in self.partitions.items():
            topics.setdefault(partition.topic, []).append(rows)
        return {topic: max(rows) * len(rows) / max(sum(rows), 1) for topic, rows in sorted(topics.items())}


def histories(receipts: Iterable[WriteReceipt], began: int, ended: int, spans: int) -> list[QueryHistory]:
    """One per query with a write that ended since ``began`` (epoch ms), the last one to write first. ``ended``: now; a
    write of an executor whose clock is ahead is in the last span.
    """
    found: dict[str, QueryHistory] = {}
    for each in receipts:
        if each.ended_at >= began:
            if each.query not in found:
                found[each.query] = QueryHistory(each.query, began, ended, [Span() for _ in range(spans)])
            found[each.query].add(each)
    return sorted(found.values(), key=lambda each: -each.last_write)
