"""What a query wrote, seen from outside: metrics as a Prometheus scrapes them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.faults.exactly_once.reader import read_committed
from tests.spark.writes import numbers, stream, streaming
from tests.support.waiting import until

pytestmark = pytest.mark.jvm


@pytest.fixture
def to_topic(topic, to_topic, second_topic, request):
    """The options of a write with receipts."""
    options = {**to_topic, "receiptsTopic": second_topic.name}
    exactly_once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": f"monitored-{topic.name}"}
    return {**options, **(exactly_once if request.param == "exactly-once" else {})}


both = pytest.mark.parametrize("to_topic", ["at-least-once", "exactly-once"], indirect=True)


@contextmanager
def exporter(options):
    """The URL of a running ``spark-kafka-sink exporter``."""
    source = ["--topic", options["receiptsTopic"], "--bootstrap-server", options["kafka.bootstrap.servers"]]
    command = [sys.executable, "-m", "spark_kafka_sink.tools.cli.main", "exporter", *source, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.search(r"http://\S+", process.stdout.readline())[0]
        finally:
            process.terminate()


def scraped(url):
    """(metric, partition) → value, as a Prometheus reads it."""
    with urlopen(url) as response:
        text = response.read().decode()
    found = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, sample.labels.get("partition")] += sample.value
    return found


def rows_of(scrape):
    return {int(part): value for (name, part), value in scrape.items() if name == "spark_kafka_sink_rows_total"}


@both
def test_totals_are_the_records_that_librdkafka_counts(spark, topic, to_topic, tmp_path):
    stream(streaming(numbers(spark, 0, 300), tmp_path / "in"), to_topic, tmp_path / "checkpoint")
    with exporter(to_topic) as url:
        assert sum(rows_of(scraped(url)).values()) == 300, "the exporter begins with what is there"
        stream(streaming(numbers(spark, 300, 1000), tmp_path / "in"), to_topic, tmp_path / "checkpoint")
        scrape = until(lambda: scraped(url), lambda scrape: sum(rows_of(scrape).values()) >= 1000)
    found = read_committed(topic.servers, topic.name)
    assert rows_of(scrape) == {partition: len(values) for partition, values in found.items() if values}
    assert scrape["spark_kafka_sink_last_batch", None] == 1
    assert scrape["spark_kafka_sink_sent_bytes_total", None] > 0
    assert scrape["spark_kafka_sink_request_latency_seconds_total", None] > 0
    with exporter(to_topic) as url:
        again = scraped(url)
    counters = [key for key in scrape if key[0].endswith("_total") and "exporter" not in key[0]]
    assert {key: again[key] for key in counters} == {key: scrape[key] for key in counters}
