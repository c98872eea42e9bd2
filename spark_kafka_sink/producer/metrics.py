"""A producer's metrics under Kafka's names (Java: ``SenderMetricsRegistry``, ``Sender.SenderMetrics``).

The sender counts per batch and per request; any thread may read. Counters only grow. A *sample* is a copy of them;
rates and averages are the difference to the older of two samples of 30 s (Java: ``metrics.num.samples``,
``metrics.sample.window.ms``). Largest values are kept per sample.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from spark_kafka_sink.network.client import AuthenticationCounters
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.selector import NetworkCounters
from spark_kafka_sink.producer.buffer_pool import BufferCounters
from spark_kafka_sink.producer.producer_batch import ProducerBatch

SAMPLES = 2
SAMPLE_WINDOW_MS = 30_000.0

PRODUCER, TOPIC, NODE = "producer-metrics", "producer-topic-metrics", "producer-node-metrics"
"""Kafka's groups. A metric of the producer sums all topics or all nodes."""


class Formula(Enum):
    """How a metric is computed from the counters ``of`` and ``per``."""

    TOTAL = "of"
    RATE = "growth of of per second"
    AVERAGE = "growth of of / growth of per; NaN if per has not grown"
    LARGEST = "largest value of of in the samples; NaN if per has not grown"
    RATIO = "growth of of, in ns, / time"
    OPEN = "of - per"
    GAUGE = "attribute of of the buffer pool"
    AGE = "seconds since attribute of of the metadata; NaN before the first response"


@dataclass(slots=True)
class TopicCounters:
    """Counters of one topic. A retry counts its batch and records again. ``ratios``: sum of the batches' compression
    rates. ``record_bytes``: before compression.
    """

    records: int = 0
    record_bytes: int = 0
    bytes: int = 0
    batches: int = 0
    ratios: float = 0.0
    queue_ms: float = 0.0
    retries: int = 0
    errors: int = 0
    splits: int = 0
    largest_record: int = 0
    largest_batch: int = 0
    longest_queue_ms: float = 0.0


@dataclass(slots=True)
class NodeCounters:
    """Counters of Produce requests to one broker."""

    requests: int = 0
    request_records: int = 0
    ended: int = 0
    responses: int = 0
    latency_ms: float = 0.0
    throttle_ms: float = 0.0
    longest_latency_ms: float = 0.0
    longest_throttle_ms: float = 0.0


Counters: TypeAlias = TopicCounters | NodeCounters | BufferCounters | NetworkCounters | AuthenticationCounters


class Metric(NamedTuple):
    name: str
    groups: tuple[str, ...]
    formula: Formula
    of: str
    per: str
    doc: str


_Row: TypeAlias = tuple[str, tuple[str, ...], Formula, str, str, str]


def _meter(name: str, groups: tuple[str, ...], of: str, doc: str) -> Iterator[_Row]:
    """A rate and its total. ``doc`` has a place for "per second"."""
    yield f"{name}-rate", groups, Formula.RATE, of, "", doc.format(" per second")
    yield f"{name}-total", groups, Formula.TOTAL, of, "", doc.format("")


METRICS = tuple(Metric(*row) for row in (
    *_meter("record-send", (PRODUCER, TOPIC), "records", "Records sent{}."),
    *_meter("record-retry", (PRODUCER, TOPIC), "retries", "Records sent again{}."),
    *_meter("record-error", (PRODUCER, TOPIC), "errors", "Records that failed{}."),
    *_meter("byte", (TOPIC,), "bytes", "Bytes of batches sent{}, compressed."),
    ("compression-rate", (TOPIC,), Formula.AVERAGE, "ratios", "batches", "Compressed / uncompressed size of batches."),
    ("compression-rate-avg", (PRODUCER,), Formula.AVERAGE, "ratios", "batches",
     "Compressed / uncompressed size of batches."),
    ("batch-size-avg", (PRODUCER,), Formula.AVERAGE, "bytes", "batches", "Bytes of a batch as sent."),
    ("batch-size-max", (PRODUCER,), Formula.LARGEST, "largest_batch", "batches", "Bytes of the largest batch as sent."),
    *_meter("batch-split", (PRODUCER,), "splits", "Batches split{}, too large for the broker."),
    ("record-size-avg", (PRODUCER, TOPIC), Formula.AVERAGE, "record_bytes", "records",
     "Bytes of a record before compression."),
    ("record-size-max", (PRODUCER, TOPIC), Formula.LARGEST, "largest_record", "records",
     "Upper bound of the bytes of the largest record before compression."),
    ("record-queue-time-avg", (PRODUCER,), Formula.AVERAGE, "queue_ms", "batches",
     "Time in ms from the creation of a batch to its request."),
    ("record-queue-time-max", (PRODUCER,), Formula.LARGEST, "longest_queue_ms", "batches",
     "Longest time in ms from the creation of a batch to its request."),
    ("records-per-request-avg", (PRODUCER,), Formula.AVERAGE, "request_records", "requests", "Records per request."),
    ("request-latency-avg", (PRODUCER, NODE), Formula.AVERAGE, "latency_ms", "responses",
     "Time in ms from a request to its response."),
    ("request-latency-max", (PRODUCER, NODE), Formula.LARGEST, "longest_latency_ms", "responses",
     "Longest time in ms from a request to its response."),
    *_meter("request", (PRODUCER, NODE), "requests", "Requests{}."),
    *_meter("response", (PRODUCER, NODE), "responses", "Responses{}."),
    ("requests-in-flight", (PRODUCER, NODE), Formula.OPEN, "requests", "ended",
     "Requests that wait for their response."),
    ("produce-throttle-time-avg", (PRODUCER,), Formula.AVERAGE, "throttle_ms", "responses",
     "Throttling in ms per response."),
    ("produce-throttle-time-max", (PRODUCER,), Formula.LARGEST, "longest_throttle_ms", "responses",
     "Longest throttling in ms per response."),
    ("bufferpool-wait-ratio", (PRODUCER,), Formula.RATIO, "memory_waited_ns", "",
     "Fraction of time that callers waited for buffer.memory; more than 1 if several wait at once."),
    ("bufferpool-wait-time-ns-total", (PRODUCER,), Formula.TOTAL, "memory_waited_ns", "",
     "Time in ns that callers waited for buffer.memory."),
    *_meter("buffer-exhausted", (PRODUCER,), "exhausted", "Appends{} that got no buffer.memory within max.block.ms."),
    ("buffer-total-bytes", (PRODUCER,), Formula.GAUGE, "total", "", "buffer.memory."),
    ("buffer-available-bytes", (PRODUCER,), Formula.GAUGE, "available", "", "Bytes of buffer.memory that are free."),
    ("waiting-threads", (PRODUCER,), Formula.GAUGE, "waiting", "", "Callers that wait for buffer.memory."),
    ("metadata-age", (PRODUCER,), Formula.AGE, "updated_at", "", "Seconds since the last metadata response."),
    ("connection-count", (PRODUCER,), Formula.OPEN, "connected", "closed", "Connections."),
    *_meter("connection-creation", (PRODUCER,), "connected", "Connections established{}."),
    *_meter("connection-close", (PRODUCER,), "closed", "Connections closed or lost{}."),
    *_meter("successful-authentication", (PRODUCER,), "authentications",
            "New connections{} that authenticated (TLS or SASL)."),
    *_meter("failed-authentication", (PRODUCER,), "authentications_failed",
            "New connections{} whose authentication failed (TLS or SASL)."),
    *_meter("successful-reauthentication", (PRODUCER,), "reauthentications", "Re-authentications{}."),
    *_meter("failed-reauthentication", (PRODUCER,), "reauthentications_failed", "Re-authentications{} that failed."),
    ("reauthentication-latency-avg", (PRODUCER,), Formula.AVERAGE, "reauthentication_ms", "reauthentications",
     "Time in ms of a re-authentication, including the wait for requests in flight."),
    ("reauthentication-latency-max", (PRODUCER,), Formula.LARGEST, "longest_reauthentication_ms", "reauthentications",
     "Longest time in ms of a re-authentication, including the wait for requests in flight."),
    *_meter("network-io", (PRODUCER,), "operations", "Reads and writes{}."),
    *_meter("outgoing-byte", (PRODUCER,), "bytes_out", "Bytes written to sockets{}."),
    *_meter("incoming-byte", (PRODUCER,), "bytes_in", "Bytes read from sockets{}."),
    *_meter("select", (PRODUCER,), "selects", "Select calls{}."),
    ("io-wait-time-ns-avg", (PRODUCER,), Formula.AVERAGE, "waited_ns", "selects", "Time in ns in a select call."),
    ("io-wait-time-ns-total", (PRODUCER,), Formula.TOTAL, "waited_ns", "", "Time in ns in select calls."),
    ("io-wait-ratio", (PRODUCER,), Formula.RATIO, "waited_ns", "", "Fraction of time in select calls."),
    ("io-time-ns-avg", (PRODUCER,), Formula.AVERAGE, "io_ns", "selects",
     "Time in ns of connecting, reading and writing, per select call."),
    ("io-time-ns-total", (PRODUCER,), Formula.TOTAL, "io_ns", "", "Time in ns of connecting, reading and writing."),
    ("io-ratio", (PRODUCER,), Formula.RATIO, "io_ns", "", "Fraction of time spent connecting, reading and writing."),
))  # fmt: skip
"""All metrics. *Requests* are Produce requests."""

_LARGEST = frozenset(metric.of for metric in METRICS if metric.formula is Formula.LARGEST)


_Base = TypeVar("_Base")


class Sample(NamedTuple, Generic[_Base]):
    """A copy of the counters, ``base``, at the time ``started`` (monotonic ms)."""

    started: float
    base: _Base


_Sample: TypeAlias = Sample[Mapping[int, Counters]]
"""Copies of the counters by their ids. Newer counters have none."""


def current_samples(samples: tuple[Sample[_Base], ...], now: float) -> tuple[tuple[Sample[_Base], ...], float]:
    """The samples that are not outdated, and the seconds that they cover: at least one whole sample, as in Java's
    ``Rate.windowSize``."""
    held = tuple(sample for sample in samples if now - sample.started < SAMPLES * SAMPLE_WINDOW_MS)
    length = now - held[0].started if held else 0.0
    missing = SAMPLES - 1 - int(length // SAMPLE_WINDOW_MS)
    return held, (length + max(0, missing) * SAMPLE_WINDOW_MS) / 1000.0


class _Window(NamedTuple):
    """The current samples, and the seconds that they cover. ``now``: monotonic ms."""

    samples: tuple[_Sample, ...]
    seconds: float
    now: float

    def growth(self, counters: Counters, name: str) -> float:
        value: float = getattr(counters, name, 0)
        if not self.samples:
            return 0.0
        base = self.samples[0].base.get(id(counters))
        return value - (getattr(base, name, 0) if base is not None else 0)

    def largest(self, counters: Counters, name: str) -> float:
        """The largest value in the window. The counters have the newest sample's; the copy in a sample has the value of
        the sample before it."""
        values = [getattr(counters, name, 0)]
        values += [getattr(sample.base.get(id(counters)), name, 0) for sample in self.samples[1:]]
        return max(values)


@dataclass(slots=True)
class ProducerMetrics:
    """The metrics of a producer. Times are monotonic ms. ``pool``: the buffer pool, whose attributes are the gauges.
    ``longest_latency_ms``: the longest latency of a request since the current task began.
    """

    pool: object = None
    buffer: BufferCounters = field(default_factory=BufferCounters)
    network: NetworkCounters = field(default_factory=NetworkCounters)
    authentication: AuthenticationCounters = field(default_factory=AuthenticationCounters)
    metadata: Metadata | None = None
    longest_latency_ms: float = 0.0
    _topics: dict[str, TopicCounters] = field(default_factory=dict)
    _nodes: dict[int, NodeCounters] = field(default_factory=dict)
    _samples: tuple[_Sample, ...] = ()
    _sample_ends: float = -math.inf

    # The sender

    def topic(self, name: str) -> TopicCounters:
        return self._topics.get(name) or self._topics.setdefault(name, TopicCounters())

    def batch_sent(self, batch: ProducerBatch, queue_ms: float) -> None:
        counters = self.topic(batch.partition.topic)
        size, plain_size = batch.size, batch.plain_size
        counters.records += batch.count
        counters.record_bytes += batch.record_bytes
        counters.bytes += size
        counters.batches += 1
        counters.ratios += size / plain_size
        counters.queue_ms += queue_ms
        if batch.largest_record > counters.largest_record:
            counters.largest_record = batch.largest_record
        if size > counters.largest_batch:
            counters.largest_batch = size
        if queue_ms > counters.longest_queue_ms:
            counters.longest_queue_ms = queue_ms

    def request_sent(self, node_id: int, records: int, now: float) -> None:
        """Called before ``batch_sent`` of the request's batches. A new sample begins here."""
        if now >= self._sample_ends:
            self._begin_sample(now)
        counters = self._node(node_id)
        counters.requests += 1
        counters.request_records += records

    def request_ended(self, node_id: int) -> None:
        """A request has ended, with or without a response."""
        self._node(node_id).ended += 1

    def response_received(self, node_id: int, latency_ms: float, throttle_ms: float) -> None:
        counters = self._node(node_id)
        counters.responses += 1
        counters.latency_ms += latency_ms
        counters.throttle_ms += throttle_ms
        counters.longest_latency_ms = max(counters.longest_latency_ms, latency_ms)
        counters.longest_throttle_ms = max(counters.longest_throttle_ms, throttle_ms)
        if latency_ms > self.longest_latency_ms:
            self.longest_latency_ms = latency_ms

    def _node(self, node_id: int) -> NodeCounters:
        return self._nodes.get(node_id) or self._nodes.setdefault(node_id, NodeCounters())

    def _begin_sample(self, now: float) -> None:
        counters = list(self._all_counters())
        base = {id(counter): copy(counter) for counter in counters}
        for counter in counters:
            for name in _LARGEST.intersection(counter.__dataclass_fields__):
                setattr(counter, name, 0)
        self._samples = (*current_samples(self._samples[1 - SAMPLES :], now)[0], Sample(now, base))
        self._sample_ends = now + SAMPLE_WINDOW_MS

    # Any thread

    def totals(self, without: Collection[str] = ()) -> dict[str, float]:
        """The sum of each counter by its name, without the topics in ``without``; and the metadata's ``waited_ms``."""
        topics = [counters for name, counters in tuple(self._topics.items()) if name not in without]
        kinds: Mapping[type[Counters], Sequence[Counters]] = {
            TopicCounters: topics,
            NodeCounters: tuple(self._nodes.values()),
            BufferCounters: (self.buffer,),
        }
        waited_ms = 0.0 if self.metadata is None else self.metadata.waited_ms
        return {"waited_ms": waited_ms} | {
            name: sum(map(attrgetter(name), counters))
            for kind, counters in kinds.items()
            for name in kind.__dataclass_fields__.keys() - _LARGEST
        }

    def read(self, now: float) -> dict[str, dict[str, float]]:
        """Every metric by group and name. Groups: ``producer-metrics``, ``producer-topic-metrics.<topic>``,
        ``producer-node-metrics.node-<id>``.
        """
        return {group + suffix: values for group, suffix, _, values in self._groups(now)}

    def open_metrics(self, client_id: str, now: float) -> str:
        """Every metric as OpenMetrics text, for Prometheus: ``kafka_producer_record_send_total{client_id="…"} 5``."""
        lines: dict[tuple[str, str], list[str]] = {}
        for group, _, labels, values in self._groups(now):
            all_labels = {"client_id": client_id, **labels}
            shown = ",".join(f'{name}="{_escape(value)}"' for name, value in all_labels.items())
            for name, value in values.items():
                sample = f"{_open_metrics_name(group, name)}{{{shown}}} {_number(value)}"
                lines.setdefault((group, name), []).append(sample)
        text = []
        for metric in METRICS:
            for group in metric.groups:
                if (group, metric.name) in lines:
                    family = _open_metrics_name(group, metric.name).removesuffix("_total")
                    kind = "counter" if metric.formula is Formula.TOTAL else "gauge"
                    text += [f"# TYPE {family} {kind}", f"# HELP {family} {metric.doc}", *lines[group, metric.name]]
        return "\n".join((*text, "# EOF", ""))

    def _groups(self, now: float) -> Iterator[tuple[str, str, dict[str, str], dict[str, float]]]:
        """The group, suffix in ``read``, labels and values of all metrics."""
        window = _Window(*current_samples(self._samples, now), now)
        yield PRODUCER, "", {}, self._values(PRODUCER, tuple(self._all_counters()), window)
        for topic, counters in tuple(self._topics.items()):
            yield TOPIC, f".{topic}", {"topic": topic}, self._values(TOPIC, (counters,), window)
        for node, node_counters in tuple(self._nodes.items()):
            yield NODE, f".node-{node}", {"node_id": str(node)}, self._values(NODE, (node_counters,), window)

    def _values(self, group: str, counters: Iterable[Counters], window: _Window) -> dict[str, float]:
        return {metric.name: self._value(metric, counters, window) for metric in METRICS if group in metric.groups}

    def _value(self, metric: Metric, counters: Iterable[Counters], window: _Window) -> float:
        of, per = metric.of, metric.per
        match metric.formula:
            case Formula.GAUGE:
                gauge: float = getattr(self.pool, of, math.nan)
                return gauge
            case Formula.AGE:
                age = math.inf if self.metadata is None else window.now - self.metadata.updated_at
                return math.nan if math.isinf(age) else age / 1000.0
            case Formula.TOTAL:
                return sum(getattr(counter, of, 0) for counter in counters)
            case Formula.OPEN:
                return sum(getattr(counter, of, 0) - getattr(counter, per, 0) for counter in counters)
            case Formula.RATE:
                return sum(window.growth(counter, of) for counter in counters) / window.seconds
            case Formula.RATIO:
                return sum(window.growth(counter, of) for counter in counters) / window.seconds / 1e9
        count = sum(window.growth(counter, per) for counter in counters)
        if not count:
            return math.nan
        if metric.formula is Formula.LARGEST:
            return max(window.largest(counter, of) for counter in counters)
        return sum(window.growth(counter, of) for counter in counters) / count

    def _all_counters(self) -> Iterator[Counters]:
        yield from tuple(self._topics.values())
        yield from tuple(self._nodes.values())
        yield self.buffer
        yield self.network
        yield self.authentication


_PREFIXES = {PRODUCER: "kafka_producer_", TOPIC: "kafka_producer_topic_", NODE: "kafka_producer_node_"}


def _open_metrics_name(group: str, name: str) -> str:
    return _PREFIXES[group] + name.replace("-", "_")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)
