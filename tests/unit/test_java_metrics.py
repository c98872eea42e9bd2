"""Every metric of Kafka's Java producer exists here, or docs/metrics.md says why not."""

import re
from pathlib import Path

from spark_kafka_sink.producer.metrics import METRICS, NODE, PRODUCER, TOPIC

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
