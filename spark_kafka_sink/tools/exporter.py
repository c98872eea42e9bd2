"""The exporter: reads the receipts of a receiptsTopic, sums them up, and serves the sums to Prometheus.

The library prometheus-client, an extra, is imported where it is needed.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.task_figures import FIGURES, Figure, is_time
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

PREFIX: Final = "spark_kafka_sink_"
OTHER: Final = "other"
"""The label for the topics and partitions of a query beyond the limit of series."""

QUERY_LABELS: Final = ("query", "query_name")
"""Labels of every metric of a query: its id, and its name if it has one."""

_PER_PARTITION: Final = ("topic", "partition")

_log = logging.getLogger("spark_kafka_sink.exporter")

MAX_SERIES: Final = 10_000
SILENT_S: Final = 30.0
"""The time after which a connection is closed whose client sends or reads nothing."""


class ExportedMetric(NamedTuple):
    """A metric of the exporter. ``name`` follows Prometheus' conventions, without ``_total``. ``labels`` come after
    ``QUERY_LABELS``.
    """

    name: str
    is_counter: bool
    labels: tuple[str, ...]
    doc: str

    @property
    def full_name(self) -> str:
        """The metric's name in Prometheus."""
        return PREFIX + self.name + ("_total" if self.is_counter else "")


ROWS = ExportedMetric("rows", True, _PER_PARTITION, "Rows acknowledged; with exactly-once, rows committed.")
BYTES = ExportedMetric("row_bytes", True, _PER_PARTITION, "Bytes of these rows as records, before compression.")
TASKS = ExportedMetric("tasks", True, (), "Tasks that wrote rows.")
LAST_BATCH = ExportedMetric("last_batch", False, (), "Number of the batch (or txnVersion) written last.")
LAST_WRITE = ExportedMetric(
    "last_write_timestamp_seconds", False, (), "When a task of the query last ended a write, epoch."
)

_PHASES: Final = ", ".join(row.line for row in FIGURES.values() if row.part)
TASK_SECONDS = ExportedMetric("task_seconds", True, ("phase",), f"Seconds of tasks: {_PHASES}.")


def _metric(row: Figure) -> ExportedMetric:
    if row.part:
        return TASK_SECONDS
    doc = f"{row.doc[:-1]}, the longest of the last batch's tasks." if row.is_largest else row.doc
    return ExportedMetric(row.metric, not row.is_largest, (row.label,) if row.label else (), doc)


_OF_FIGURES: Final = {name: _metric(row) for name, row in FIGURES.items() if row.metric or row.part}
METRICS: Final = (ROWS, BYTES, TASKS, *dict.fromkeys(_OF_FIGURES.values()), LAST_BATCH, LAST_WRITE)

RECEIPTS = ExportedMetric("exporter_receipts", True, (), "Receipts read.")
FOREIGN = ExportedMetric("exporter_foreign_records", True, (), "Records that are not receipts.")
ERRORS = ExportedMetric("exporter_read_errors", True, (), "Failed attempts to read receipts; the log has each.")
LAST_READ = ExportedMetric(
    "exporter_last_read_timestamp_seconds", False, (), "When receipts were last read to the end, epoch."
)

EXPORTER_METRICS: Final = (RECEIPTS, FOREIGN, ERRORS, LAST_READ)
"""Metrics of the exporter itself, without labels."""


class ExportedValue(NamedTuple):
    """A metric's value. ``labels`` maps names to values."""

    metric: ExportedMetric
    labels: Mapping[str, str]
    value: float


@dataclass(slots=True)
class _Query:
    """The sums of a query. ``values``: by metric and the values of its labels. ``partitions``: each topic and partition
    that is counted."""

    name: str = ""
    partitions: set[tuple[str, str]] = field(default_factory=set)
    values: dict[tuple[ExportedMetric, tuple[str, ...]], float] = field(default_factory=dict)

    def add(self, metric: ExportedMetric, value: float, *labels: str) -> None:
        """Adds to a counter, raises a gauge."""
        before = self.values.get((metric, labels), 0.0)
        self.values[metric, labels] = before + value if metric.is_counter else max(before, value)


class ReceiptTotals:
    """Sums up receipts, for at most ``most_series`` combinations of query, topic and partition. Beyond that, the
    queries that wrote least recently are forgotten. If a single query has more topics and partitions than this, the
    rest is counted as ``other``.
    """

    def __init__(self, most_series: int) -> None:
        self._most_series = most_series
        self._series = 0
        self._queries: OrderedDict[str, _Query] = OrderedDict()

    def add(self, receipt: WriteReceipt) -> None:
        query = self._queries.setdefault(receipt.query, _Query())
        self._queries.move_to_end(receipt.query)
        query.name = receipt.query_name or query.name
        if receipt.count:
            key = self._key(query, receipt)
            query.partitions.add(key)
            query.add(ROWS, receipt.count, *key)
            query.add(BYTES, receipt.bytes, *key)
        if query.values.get((LAST_BATCH, ())) != receipt.batch:
            query.values.update({(metric, ()): 0.0 for metric in _OF_FIGURES.values() if not metric.is_counter})
            query.values[LAST_BATCH, ()] = receipt.batch
        query.add(LAST_WRITE, receipt.ended_at / 1000)
        if receipt.figures is not None:
            query.add(TASKS, 1)
            for name, metric in _OF_FIGURES.items():
                unit = 1000 if is_time(name) else 1
                for label, value in receipt.figures.by_label(name):
                    query.add(metric, value / unit, *((label,) if metric.labels else ()))

    def samples(self) -> Iterator[ExportedValue]:
        for query_id, query in self._queries.items():
            named = {"query": query_id, **({"query_name": query.name} if query.name else {})}
            for (metric, labels), value in query.values.items():
                yield ExportedValue(metric, {**named, **dict(zip(metric.labels, labels, strict=True))}, value)

    def _key(self, query: _Query, receipt: WriteReceipt) -> tuple[str, str]:
        key = (receipt.topic, str(receipt.partition))
        if key not in query.partitions:
            while self._series >= self._most_series and len(self._queries) > 1:
                _, forgotten = self._queries.popitem(last=False)
                self._series -= len(forgotten.partitions)
            if self._series >= self._most_series:
                key = (OTHER, OTHER)
            self._series += key not in query.partitions
        return key


class Exporter:
    """Keeps ``samples`` up to date. One thread calls ``read_all``, then ``read`` again and again. Any thread may read
    ``samples``, a tuple that is replaced as a whole.
    """

    def __init__(self, reader: TopicReceipts, clock: Clock, most_series: int = MAX_SERIES) -> None:
        self.samples: Sequence[ExportedValue] = ()
        self._reader = reader
        self._clock = clock
        self._totals = ReceiptTotals(most_series)
        self._of_queries: tuple[ExportedValue, ...] = ()
        self._receipts = self._errors = 0
        self._last_read = 0.0

    def read_all(self) -> None:
        """Reads all receipts that are there. Raises ``KafkaError``."""
        before = self._receipts
        try:
            for receipt in self._reader.read():
                self._totals.add(receipt)
                self._receipts += 1
            self._last_read = self._clock.epoch_ms() / 1000
        finally:
            if self._receipts > before:
                self._of_queries = tuple(self._totals.samples())
            self._publish()

    def read(self) -> None:
        """Reads new receipts. An error is logged and counted, and the next call tries again."""
        try:
            self.read_all()
        except KafkaError as error:
            _log.warning("Receipts cannot be read: %s", error)
            self._errors += 1
            self._publish()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The metrics of a scrape, as a ``Collector`` of prometheus-client makes them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families: dict[ExportedMetric, CounterMetricFamily | GaugeMetricFamily] = {}
        names = {metric: (*QUERY_LABELS, *metric.labels) for metric in METRICS} | dict.fromkeys(EXPORTER_METRICS, ())
        for metric in names:
            family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
            families[metric] = family(PREFIX + metric.name, metric.doc, labels=names[metric])
        for metric, labels, value in self.samples:
            families[metric].add_metric([labels.get(name, "") for name in names[metric]], value)
        yield from families.values()

    def _publish(self) -> None:
        own = {
            RECEIPTS: self._receipts,
            FOREIGN: self._reader.foreign,
            ERRORS: self._errors,
            LAST_READ: self._last_read,
        }
        self.samples = (*self._of_queries, *(ExportedValue(metric, {}, value) for metric, value in own.items()))


_PARTITIONS_EVERY_MS: Final = 60_000.0


class TopicReceipts:
    """Reads all partitions of a receiptsTopic, read_committed, on one thread. Each request may take max.block.ms.
    ``foreign``: the number of records that ``WriteReceipt.parse`` has rejected, which are left out.
    """

    def __init__(self, config: ProducerConfig, topic: str, clock: Clock) -> None:
        self.foreign = 0
        self._topic = topic
        self._wait_ms = config.max_block_ms
        self._cluster = Cluster(config, clock)
        self._logs: dict[int, PartitionLog] = {}
        self._offsets: dict[int, int] = {}
        self._look_up_at = -math.inf

    def read(self) -> Iterator[WriteReceipt]:
        """The receipts since the last call, up to the end. Raises ``KafkaError``; the next call continues there."""
        self._look_up_partitions()
        for number, log in self._logs.items():
            if number not in self._offsets:
                self._offsets[number] = log.earliest(self._deadline())
            yield from self._read(number, log)

    def close(self) -> None:
        self._cluster.close()

    def _read(self, number: int, log: PartitionLog) -> Iterator[WriteReceipt]:
        while True:
            offset = self._offsets[number]
            fetched = log.fetch(offset, self._deadline(), read_committed=True)
            if fetched is None:  # retention has removed the records, or the topic was created again
                self._offsets[number] = log.earliest(self._deadline())
                continue
            records = [record for batch in fetched.batches for record in batch.records() if record.offset >= offset]
            self._offsets[number] = fetched.next_offset
            for record in records:
                try:
                    receipt = WriteReceipt.parse((record.value or b"").decode(errors="replace"))
                except ValueError:
                    self.foreign += 1
                else:
                    yield receipt
            if fetched.next_offset >= fetched.end:
                break

    def _look_up_partitions(self) -> None:
        now = self._cluster.now()
        if now < self._look_up_at:
            return
        info = self._cluster.topic(self._topic, self._deadline())
        if info is None:
            raise KafkaError(f"receiptsTopic {self._topic}: there is no such topic. Create it, or correct --topic.")
        for number in range(info.partition_count):
            if number not in self._logs:
                self._logs[number] = PartitionLog(self._cluster, TopicPartition(self._topic, number))
        self._look_up_at = now + _PARTITIONS_EVERY_MS

    def _deadline(self) -> float:
        return self._cluster.now() + self._wait_ms


class _Handler(WSGIRequestHandler):
    """A handler with a timeout, because the library's handler waits for a request forever, with a thread for each
    connection."""

    timeout = SILENT_S

    def handle(self) -> None:
        with suppress(TimeoutError):
            super().handle()

    def log_message(self, *args: object, **kwargs: object) -> None:
        """Logs no requests."""


def serve(exporter: Exporter, host: str, port: int) -> int:
    """Serves ``/metrics`` on daemon threads until the process ends. Returns the port. Raises ``OSError``."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(exporter)
    server, _ = start_http_server(port, host, registry)
    server.RequestHandlerClass = _Handler
    return int(server.server_port)
