"""What the exporter serves is the sum of the receipts, under names that Prometheus' conventions allow."""

import dataclasses
import socket
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt
from spark_kafka_sink.tools import exporter
from spark_kafka_sink.tools.cli.main import main, parser
from spark_kafka_sink.tools.exporter import Exporter, ReceiptTotals, serve
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S

FIGURES = TaskFigures(
    rows=30, bytes=300, compressed_bytes=200, batches=3, retries=2, requests=4, throttle_ms=500.0, latency_avg_ms=5.0,
    latency_max_ms=9.0, duration_ms=4000.0, encode_ms=1000.0, memory_wait_ms=500.0, ack_wait_ms=250.0,
    dead_letters=(("encode", 2),),
)  # fmt: skip


def receipt(query="q", batch=0, partition=0, count=10, topic="t", figures=None):
    return WriteReceipt(query, batch, 0, topic, partition, 0, count - 1, count, 10 * count, 1000, 2000 + batch, figures)


class Listed:
    """Receipts as a list, and an error instead when there is one."""

    def __init__(self, *receipts):
        self.foreign = 0
        self.new = [*receipts]
        self.error = None

    def read(self):
        while self.new:
            yield self.new.pop(0)
        if self.error is not None:
            raise self.error

    def close(self):
        pass


@pytest.fixture
def reader():
    return Listed(receipt(figures=FIGURES), receipt(partition=1, count=20), receipt("other", 7, figures=FIGURES))


def scraped(port):
    """Metric's name with its labels' values → value, as a Prometheus reads them."""
    order = ("query", "topic", "partition", "phase", "reason")
    with urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    return {
        (
            sample.name.removeprefix("spark_kafka_sink_"),
            *(sample.labels[n] for n in order if n in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_has_the_sums_of_the_receipts_by_query_topic_and_partition(reader):
    exporter = Exporter(reader, ManualClock())
    exporter.read_all()
    port = serve(exporter, "127.0.0.1", 0)
    found = scraped(port)
    assert found["rows_total", "q", "t", "0"] == 10
    assert (found["rows_total", "q", "t", "1"], found["row_bytes_total", "q", "t", "1"]) == (20, 200)
    assert found["tasks_total", "q"] == 1
    assert (found["sent_bytes_total", "q"], found["record_batches_total", "q"]) == (200, 3)
    assert (found["retried_rows_total", "q"], found["throttle_seconds_total", "q"]) == (2, 0.5)
    assert found["request_latency_seconds_total", "q"] / found["requests_total", "q"] == pytest.approx(0.005)
    assert found["request_latency_max_seconds", "q"] == 0.009
    phases = {key[2]: value for key, value in found.items() if key[:2] == ("task_seconds_total", "q")}
    assert phases == {"encoding": 1.0, "memory": 0.5, "acknowledgements": 0.25, "rows": 2.25}
    assert found["dead_letters_total", "q", "encode"] == 2
    assert (found["last_batch", "other"], found["last_write_timestamp_seconds", "other"]) == (7, 2.007)
    assert (found["exporter_receipts_total",], found["exporter_foreign_records_total",]) == (3, 0)
    reader.new = [receipt(count=5)]
    exporter.read()
    assert scraped(port)["rows_total", "q", "t", "0"] == 15


def test_a_query_with_a_name_has_it_beside_its_id():
    """Those without have no further label: an empty one is as good as none to Prometheus."""
    named = dataclasses.replace(receipt(figures=FIGURES), query_name="orders")
    exporter = Exporter(Listed(named, receipt(partition=1), receipt("other")), ManualClock())
    exporter.read_all()
    of_queries = [each.labels for each in exporter.samples if each.labels]
    assert {labels.get("query_name") for labels in of_queries if labels["query"] == "q"} == {"orders"}
    assert not any("query_name" in labels for labels in of_queries if labels["query"] == "other")
    with urlopen(f"http://127.0.0.1:{serve(exporter, '127.0.0.1', 0)}/metrics") as response:
        text = response.read().decode()
    assert 'spark_kafka_sink_rows_total{partition="1",query="q",query_name="orders",topic="t"} 10.0' in text
    assert 'spark_kafka_sink_last_batch{query="other",query_name=""} 0.0' in text


def test_a_task_with_nothing_but_dead_letters_counts_them_and_no_rows():
    totals = ReceiptTotals(10)
    totals.add(WriteReceipt("q", 0, 0, "", -1, -1, -1, 0, 0, 1000, 2000, FIGURES))
    found = {each.metric.name: each.value for each in totals.samples()}
    assert (found["dead_letters"], "rows" in found) == (2, False)


def test_the_gauges_of_a_query_are_those_of_its_last_batch():
    slow = TaskFigures(rows=1, duration_ms=9000.0, latency_max_ms=700.0)
    totals = ReceiptTotals(10)
    for each in (receipt(batch=1, figures=slow), receipt(batch=2, figures=FIGURES), receipt(batch=2, partition=1)):
        totals.add(each)
    gauges = {each.metric.name: each.value for each in totals.samples() if not each.metric.is_counter}
    assert gauges["last_batch"] == 2
    assert (gauges["slowest_task_seconds"], gauges["request_latency_max_seconds"]) == (4.0, 0.009)


def rows(totals):
    return {tuple(each.labels.values()): each.value for each in totals.samples() if each.metric.name == "rows"}


def test_beyond_the_limit_the_queries_that_wrote_least_recently_are_forgotten():
    totals = ReceiptTotals(4)
    for name in ("a", "b", "a", "c", "d"):
        totals.add(receipt(name))
    totals.add(receipt("d", partition=1))
    assert {labels[0] for labels in rows(totals)} == {"a", "c", "d"}
    assert rows(totals)["a", "t", "0"] == 20


def test_a_single_query_beyond_the_limit_keeps_its_total_under_other():
    totals = ReceiptTotals(3)
    for partition in range(8):
        totals.add(receipt(partition=partition))
        totals.add(receipt(partition=partition))
    found = rows(totals)
    assert len(found) <= 4
    assert found["q", "other", "other"] == 100
    assert sum(found.values()) == 160


def test_an_error_is_counted_and_the_next_read_goes_on(reader, caplog):
    exporter = Exporter(reader, ManualClock())
    reader.error = KafkaError("no broker")
    with pytest.raises(KafkaError):
        exporter.read_all()
    reader.new = [receipt("late")]
    exporter.read()
    reader.error = None
    exporter.read()
    found = {each.metric.name: each.value for each in exporter.samples if not each.labels}
    assert (found["exporter_read_errors"], found["exporter_receipts"]) == (1, 4)
    assert "late" in {each.labels.get("query") for each in exporter.samples}
    assert "Receipts cannot be read: no broker" in caplog.text


def test_incident_the_exporter_listened_on_every_interface():
    arguments = parser().parse_args(["exporter", "--topic", "receipts", "--bootstrap-server", "h:1"])
    assert arguments.listen == "127.0.0.1:9464"


def test_incident_silent_connections_each_took_a_thread_for_ever(reader, monkeypatch, capsys):
    assert exporter._Handler.timeout == exporter.SILENT_S
    monkeypatch.setattr(exporter._Handler, "timeout", 0.05)
    port = serve(Exporter(reader, ManualClock()), "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as silent:
        assert silent.recv(1) == b""
    assert capsys.readouterr().err == ""


def test_the_command_names_a_wrong_address_and_a_missing_extra(capsys, monkeypatch):
    line = ["exporter", "--topic", "t", "--bootstrap-server", "h:1"]
    assert main([*line, "--listen", "nowhere"]) == 1
    assert "--listen nowhere is not of the form HOST:PORT" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(line) == 1
    assert "pip install 'spark-kafka-sink[exporter]'" in capsys.readouterr().err
