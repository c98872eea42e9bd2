"""``TaskMeter``: measures one task's use of a producer that other tasks use before and after it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.metrics import ProducerMetrics, ProducerTotals
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.producer.receipt import SendReceipt


class TaskMeter:
    """One thread. The producer's counters are read twice: when the task leases it, and when its rows are acknowledged.

    A task makes it before its first row. ``own_topics``: of the sink's own records, whose batches do not count.
    """

    def __init__(self, clock: Clock, own_topics: Collection[str] = ()) -> None:
        self._clock = clock
        self._own_topics = own_topics
        self._began, self._began_at = clock.now(), clock.epoch_ms()
        self._metrics: ProducerMetrics | None = None
        self._before = ProducerTotals()
        self._append_ms = self._wait_ms = 0.0
        self._dead_letters: dict[str, int] = {}

    def lease(self, metrics: ProducerMetrics) -> None:
        """The task has the producer with these metrics for itself from here on."""
        self._metrics, self._before = metrics, metrics.begin_totals(self._own_topics)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """Around the work on rows that Spark handed over."""
        began = self._clock.now()
        yield
        self._append_ms += self._clock.now() - began

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """Around waits for acknowledgements."""
        began = self._clock.now()
        yield
        self._wait_ms += self._clock.now() - began

    def paused(self, ms: float) -> None:
        """Time slept for the rate limit within ``appending``; not counted as work."""
        self._append_ms -= ms

    def add_dead_letters(self, reason: str, rows: int) -> None:
        self._dead_letters[reason] = self._dead_letters.get(reason, 0) + rows

    def figures(self, receipt: SendReceipt) -> TaskFigures:
        """The task's figures, once all rows of ``receipt`` are acknowledged."""
        before = self._before
        after = before if self._metrics is None else self._metrics.totals(self._own_topics)
        memory_ms = after.memory_wait_ms - before.memory_wait_ms
        metadata_ms = after.metadata_wait_ms - before.metadata_wait_ms
        requests = after.responses - before.responses
        latency_ms = after.latency_ms - before.latency_ms
        deliveries = receipt.deliveries.values()
        return TaskFigures(
            began_at=self._began_at,
            rows=sum(each.count for each in deliveries),
            bytes=sum(each.size for each in deliveries),
            compressed_bytes=after.bytes - before.bytes,
            batches=after.batches - before.batches,
            retries=after.retries - before.retries,
            requests=requests,
            throttle_ms=after.throttle_ms - before.throttle_ms,
            latency_avg_ms=latency_ms / requests if requests else 0.0,
            latency_max_ms=after.longest_latency_ms,
            duration_ms=self._clock.now() - self._began,
            encode_ms=max(0.0, self._append_ms - memory_ms - metadata_ms),
            memory_wait_ms=memory_ms,
            ack_wait_ms=self._wait_ms,
            dead_letters=tuple(sorted(self._dead_letters.items())),
        )
