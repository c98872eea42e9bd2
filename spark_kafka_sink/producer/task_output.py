"""``TaskOutput``: the destination of a Spark task's rows, a producer that other tasks use before and after it.
``TaskMeter`` measures the task's use of this producer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self, TypeAlias

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.task_figures import FIGURES, TaskFigures
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.receipt import RefusalReceipt, RefusedRecord, SendReceipt
from spark_kafka_sink.records.arrays import Int32Array
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn

Lease: TypeAlias = Callable[[ProducerConfig], AbstractContextManager[ProducerCore]]
"""Lends a producer for a block, and closes it if the block raises."""


class TaskOutput:
    """Writes a task's rows at least once, inside a ``with`` block. One thread. ``TaskTransaction`` writes them exactly
    once.

    ``own_topics``: the topics of the sink's own records, whose batches do not count in the figures. ``kept_codes``:
    error codes; a record that a broker refuses with one of them does not fail the task, but is one of ``refused``.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        lease: Lease,
        own_topics: Collection[str] = (),
        kept_codes: Collection[int] = (),
    ) -> None:
        self.receipt, self._own = (RefusalReceipt(kept_codes) if kept_codes else SendReceipt() for _ in range(2))
        self._own.first_row = None
        self.meter = TaskMeter(clock, own_topics)
        self.began_at = 0
        """When the task leased its producer, in epoch ms. 0: it has none, because it has no rows."""
        self._config = config
        self._clock = clock
        self._lease = lease
        self._leased = ExitStack()
        self._core: ProducerCore | None = None

    @property
    def writes(self) -> bool:
        """Whether rows are written; False in a replay, whose rows are only counted."""
        return True

    def core(self) -> ProducerCore:
        """The producer's core, leased at the first call. Its transaction may still have to begin."""
        if self._core is None:
            self.began_at = self._clock.epoch_ms()
            self._core = self._leased.enter_context(self._lease(self._config))
            self.meter.lease(self._core.accumulator.metrics)
        return self._core

    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """Counts rows of the task that ``append_own`` writes in another form. Replays compare them."""

    def append(self, topics: TopicColumn, columns: RecordColumns, partitions: Int32Array | None) -> None:
        """Appends rows as ``ProducerCore.append_columns`` does."""
        self.core().append_columns(topics, columns, partitions, self.receipt)

    def append_own(self, topic: str, columns: RecordColumns) -> None:
        """Appends the sink's own records: dead letters and receipts."""
        self.core().append_columns(topic, columns, None, self._own)

    def flush(self) -> None:
        """Waits until every record is acknowledged, or is one of ``refused``."""
        if self._core is not None:
            with self.meter.awaiting():
                self._core.flush()
                self.receipt.wait(self._config.delivery_timeout_ms)
                self._own.wait(self._config.delivery_timeout_ms)

    def refused(self) -> Iterator[tuple[RefusedRecord, bool]]:
        """Takes the refused records so far, and whether each came from ``append_own``. Empty in a transaction, which
        such a record has failed. A caller that takes them after each append bounds what they hold (``RefusalReceipt``).
        """
        for receipt in (self.receipt, self._own):
            while isinstance(receipt, RefusalReceipt) and (record := receipt.take_refused()) is not None:
                yield record, receipt is self._own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._leased.__exit__(*error)


class TaskMeter:
    """Measures a task, on one thread. Reads the producer's counters twice: when the task leases the producer, and when
    its rows are acknowledged. Made before the task's first row. ``own_topics``: the topics of the sink's own records,
    whose batches do not count.
    """

    def __init__(self, clock: Clock, own_topics: Collection[str] = ()) -> None:
        self._clock = clock
        self._own_topics = own_topics
        self._began, self._began_at = clock.now(), clock.epoch_ms()
        self._metrics = ProducerMetrics()
        self._before: Mapping[str, float] = self._metrics.totals()
        self._append_ms = self._wait_ms = 0.0
        self._dead_letters: dict[str, int] = {}
        self.cut_letters = 0
        """The number of dead letters without the row's value."""

    def lease(self, metrics: ProducerMetrics) -> None:
        """Notes that from here on the task has the producer with these metrics for itself."""
        metrics.longest_latency_ms = 0.0  # nothing is in flight
        self._metrics, self._before = metrics, metrics.totals(self._own_topics)

    @contextmanager
    def appending(self) -> Iterator[None]:
        """A block around the work on rows that Spark handed over."""
        began = self._clock.now()
        yield
        self._append_ms += self._clock.now() - began

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """A block around waits for acknowledgements."""
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
        after: Mapping[str, Any] = self._metrics.totals(self._own_topics)
        spent = {name: total - self._before[name] for name, total in after.items()}
        memory_wait_ms = spent["memory_waited_ns"] / 1e6
        deliveries = receipt.deliveries.values()
        return TaskFigures(
            **{name: spent[figure.counter] for name, figure in FIGURES.items() if figure.counter},
            began_at=self._began_at,
            rows=sum(delivery.count for delivery in deliveries),
            bytes=sum(delivery.size for delivery in deliveries),
            latency_avg_ms=spent["latency_ms"] / max(1, spent["responses"]),
            latency_max_ms=self._metrics.longest_latency_ms,
            duration_ms=self._clock.now() - self._began,
            encode_ms=max(0.0, self._append_ms - memory_wait_ms - spent["waited_ms"]),
            memory_wait_ms=memory_wait_ms,
            ack_wait_ms=self._wait_ms,
            dead_letters=tuple(sorted(self._dead_letters.items())),
            cut_letters=self.cut_letters,
        )
