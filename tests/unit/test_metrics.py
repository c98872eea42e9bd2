import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.producer.metrics import (
    METRICS,
    NODE,
    PRODUCER,
    TOPIC,
    ProducerMetrics,
)


def batch(topic: str, count: int, size: int, plain_size: int = 100, largest_record: int = 0) -> SimpleNamespace:
    partition = TopicPartition(topic, 0)
    return SimpleNamespace(
        partition=partition,
        count=count,
        size=size,
        plain_size=plain_size,
        record_bytes=plain_size - 61,
        largest_record=largest_record,
    )


def one_request(metrics: ProducerMetrics, now: float, *, records: int = 10, size: int = 500, topic: str = "t") -> None:
    metrics.request_sent(1, records, now)
    metrics.batch_sent(batch(topic, records, size, 1000), 5.0)
    metrics.request_ended(1)
    metrics.response_received(1, 8.0, 0.0)


@pytest.mark.parametrize(
    ("asked_at", "seconds"),
    [(0, 30), (10_000, 40), (29_999, 59.999), (30_000, 30), (59_999, 59.999)],
)
def test_a_rate_is_over_the_time_since_the_first_sample_and_one_more_while_that_is_not_whole(asked_at, seconds):
    """``Rate.windowSize`` of kafka-clients with its two samples of 30 s."""
    metrics = ProducerMetrics()
    one_request(metrics, 0, records=600)
    assert metrics.read(asked_at)[PRODUCER]["record-send-rate"] == pytest.approx(600 / seconds)


def test_each_topic_and_each_node_has_its_own_and_the_producer_the_sum():
    metrics = ProducerMetrics()
    metrics.request_sent(1, 5, 0)
    metrics.batch_sent(batch("a", 2, 100), 1)
    metrics.batch_sent(batch("b", 3, 300), 2)
    metrics.request_sent(2, 4, 0)
    metrics.batch_sent(batch("b", 4, 500), 9)
    metrics.request_ended(2)
    metrics.response_received(2, 30, 0)
    metrics.topic("a").retries += 2
    metrics.topic("b").errors += 3
    found = metrics.read(0)
    assert found["producer-topic-metrics.a"]["record-send-total"] == 2
    assert found["producer-topic-metrics.b"]["record-send-total"] == 7
    assert found["producer-topic-metrics.b"]["byte-total"] == 800
    assert found["producer-node-metrics.node-1"]["requests-in-flight"] == 1
    assert found["producer-node-metrics.node-2"]["request-latency-max"] == 30
    assert math.isnan(found["producer-node-metrics.node-1"]["request-latency-max"])
    assert found[PRODUCER]["record-send-total"] == 9
    assert found[PRODUCER]["record-queue-time-max"] == 9
    assert found[PRODUCER]["record-retry-total"] == 2
    assert found[PRODUCER]["record-error-total"] == 3
    assert found[PRODUCER]["requests-in-flight"] == 1


def test_what_is_older_than_two_samples_no_longer_counts():
    metrics = ProducerMetrics()
    one_request(metrics, 0, records=100, size=9000)
    one_request(metrics, 31_000, records=10, size=500)
    both = metrics.read(59_999)[PRODUCER]
    assert both["record-send-rate"] == pytest.approx(110 / 59.999)
    assert both["batch-size-max"] == 9000
    one = metrics.read(61_000)[PRODUCER]
    assert one["record-send-rate"] == pytest.approx(10 / 30)
    assert one["batch-size-max"] == one["batch-size-avg"] == 500
    none = metrics.read(91_000)[PRODUCER]
    assert none["record-send-rate"] == 0
    assert math.isnan(none["batch-size-max"])
    assert math.isnan(none["batch-size-avg"])
    assert none["record-send-total"] == 110


def test_after_a_long_pause_a_new_sample_begins_with_nothing_of_the_old_ones():
    metrics = ProducerMetrics()
    one_request(metrics, 0, records=100, size=9000)
    one_request(metrics, 3_600_000, records=10, size=500)
    found = metrics.read(3_600_000)[PRODUCER]
    assert found["record-send-rate"] == pytest.approx(10 / 30)
    assert found["batch-size-max"] == 500


def test_a_topic_that_comes_later_counts_from_nothing():
    metrics = ProducerMetrics()
    one_request(metrics, 0)
    one_request(metrics, 1000, records=60, topic="late")
    assert metrics.read(30_000)["producer-topic-metrics.late"]["record-send-rate"] == pytest.approx(2)


def test_waiting_for_memory_is_a_ratio_of_time():
    metrics = ProducerMetrics()
    one_request(metrics, 0)
    metrics.buffer.memory_waited_ns += 15 * 10**9
    metrics.buffer.exhausted += 1
    found = metrics.read(30_000)[PRODUCER]
    assert found["bufferpool-wait-ratio"] == pytest.approx(0.5)
    assert found["bufferpool-wait-time-ns-total"] == 15 * 10**9
    assert found["buffer-exhausted-total"] == 1


def test_time_in_select_calls_and_on_sockets_is_a_ratio_of_time():
    metrics = ProducerMetrics()
    one_request(metrics, 0)
    metrics.network.selects += 10
    metrics.network.waited_ns += 6 * 10**9
    metrics.network.io_ns += 3 * 10**9
    found = metrics.read(30_000)[PRODUCER]
    assert found["io-wait-ratio"] == pytest.approx(0.2)
    assert found["io-ratio"] == pytest.approx(0.1)
    assert found["io-wait-time-ns-avg"] == pytest.approx(6e8)


def test_a_producer_that_has_sent_nothing_has_all_its_metrics():
    found = ProducerMetrics().read(0)
    assert list(found) == [PRODUCER]
    assert set(found[PRODUCER]) == {metric.name for metric in METRICS if PRODUCER in metric.groups}
    assert found[PRODUCER]["record-send-rate"] == 0
    assert math.isnan(found[PRODUCER]["request-latency-avg"])


def test_open_metrics_has_every_value_in_families_with_labels():
    metrics = ProducerMetrics(SimpleNamespace(total=32))
    one_request(metrics, 0, topic='odd "topic"')
    lines = metrics.open_metrics("c\\1", 0).splitlines()
    assert lines[-1] == "# EOF"
    assert "# TYPE kafka_producer_record_send counter" in lines
    assert 'kafka_producer_record_send_total{client_id="c\\\\1"} 10' in lines
    assert 'kafka_producer_topic_record_send_total{client_id="c\\\\1",topic="odd \\"topic\\""} 10' in lines
    assert 'kafka_producer_node_request_latency_avg{client_id="c\\\\1",node_id="1"} 8.0' in lines
    assert "# TYPE kafka_producer_buffer_total_bytes gauge" in lines
    assert 'kafka_producer_buffer_available_bytes{client_id="c\\\\1"} NaN' in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) == sum(len(values) for values in metrics.read(0).values())


# Every metric of Kafka's Java producer exists here, or docs/metrics.md says why not.

PAGE = Path(__file__).parents[2] / "docs/metrics.md"
ROW = re.compile(r"^\| `(?P<group>[\w-]+)` \| (?P<names>(?:`[\w-]+` ?)+)\| (?P<here>[^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"`([\w-]+)`")


def suffixed(suffixes: str, *names: str) -> list[str]:
    return [f"{name}-{suffix}" for name in names for suffix in suffixes.split()]


JAVA = {
    PRODUCER: [
        # SenderMetricsRegistry
        *suffixed("avg max", "batch-size", "record-queue-time", "request-latency", "record-size"),
        *suffixed("avg max", "produce-throttle-time"),
        *suffixed("rate total", "record-send", "record-retry", "record-error", "batch-split"),
        *("compression-rate-avg", "records-per-request-avg", "requests-in-flight", "metadata-age"),
        # BufferPool, RecordAccumulator
        *("bufferpool-wait-ratio", "bufferpool-wait-time-total", "bufferpool-wait-time-ns-total"),
        *suffixed("rate total", "buffer-exhausted"),
        *("waiting-threads", "buffer-total-bytes", "buffer-available-bytes"),
        # KafkaProducerMetrics
        *suffixed("time-ns-total", "flush", "metadata-wait", "txn-init", "txn-begin", "txn-send-offsets"),
        *suffixed("time-ns-total", "txn-commit", "txn-abort"),
        # Selector.SelectorMetrics
        *suffixed("rate total", "connection-close", "connection-creation", "network-io", "select"),
        *suffixed("rate total", "request", "response", "outgoing-byte", "incoming-byte"),
        *suffixed("rate total", "successful-authentication", "successful-reauthentication"),
        *suffixed("rate total", "failed-authentication", "failed-reauthentication"),
        *suffixed("avg max", "request-size", "reauthentication-latency"),
        *suffixed("ratio time-ns-avg time-ns-total", "io", "io-wait"),
        *("iotime-total", "io-waittime-total", "successful-authentication-no-reauth-total"),
        *("connections", "connection-count"),
    ],
    TOPIC: [
        *suffixed("rate total", "record-send", "byte", "record-retry", "record-error"),
        "compression-rate",
    ],
    NODE: [
        *suffixed("rate total", "request", "response", "outgoing-byte", "incoming-byte"),
        *suffixed("avg max", "request-size", "request-latency"),
    ],
    "app-info": ["version", "commit-id", "start-time-ms"],
    "kafka-metrics-count": ["count"],
}
"""By group: every metric that kafka-clients 4.x registers for a producer, and the class that does."""

OURS = {(group, metric.name) for metric in METRICS for group in metric.groups}


def table() -> list[tuple[str, str, str]]:
    """Group, name and what the page says of it."""
    section = PAGE.read_text().partition("## Java's metrics")[2]
    return [(row["group"], name, row["here"]) for row in ROW.finditer(section) for name in NAME.findall(row["names"])]


def test_the_page_names_every_metric_of_java_that_is_not_here():
    listed = [(group, name) for group, name, _ in table()]
    assert len(set(listed)) == len(listed)
    java = {(group, name) for group, names in JAVA.items() for name in names}
    assert java - OURS <= set(listed) <= java


def test_a_metric_that_is_here_is_the_same_but_for_something_and_one_that_is_not_has_a_reason():
    for group, name, here in table():
        assert here.startswith("Same, ") == ((group, name) in OURS), name
        assert here.startswith(("Same, ", "No: ")), here
