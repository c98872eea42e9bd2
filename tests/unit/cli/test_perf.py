"""The command on a TestBroker."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest

from spark_kafka_sink.testing import KEPT, TestBroker
from spark_kafka_sink.tools.cli import perf as command
from spark_kafka_sink.tools.cli.main import main, parser
from spark_kafka_sink.tools.cli.perf import Report, live_line

TOTAL = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency, "
    r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th\.\n"
)


@pytest.fixture
def broker():
    with TestBroker() as broker:
        broker.create_topic("t", partitions=2)
        yield broker


def perf(broker: TestBroker, *arguments: str) -> int:
    return main(["perf", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", *arguments])


def test_the_last_line_has_the_columns_of_kafka_producer_perf_test(broker, capsys):
    assert perf(broker, "--num-records", "2000", "--record-size", "100") == 0
    total = TOTAL.fullmatch(capsys.readouterr().out)
    count, rate, megabytes, average, highest, p50, p95, p99, p999 = map(float, total.groups())
    assert count == 2000
    assert megabytes == pytest.approx(rate * 100 / 2**20, abs=0.01)
    assert 0 < average <= highest
    assert p50 <= p95 <= p99 <= p999 <= highest + 0.5
    values = broker.topic("t").values()
    assert len(values) == 2000
    assert {len(value) for value in values} == {100}
    assert len(set(values)) == 1024
    assert re.fullmatch(rb"[A-Z]{100}", values[0])


def test_the_lines_of_a_payload_file_are_sent_again_and_again(broker, tmp_path):
    payload = tmp_path / "lines.txt"
    payload.write_bytes(b"one\ntwo\nthree\n")
    assert perf(broker, "--num-records", "7", "--payload-file", str(payload)) == 0
    assert sorted(broker.topic("t").values()) == sorted([b"one", b"two", b"three"] * 2 + [b"one"])


def test_a_throughput_is_kept_to(broker, capsys):
    assert perf(broker, "--num-records", "300", "--throughput", "1000") == 0
    rate = float(TOTAL.fullmatch(capsys.readouterr().out)[2])
    assert rate <= 1050


def test_records_that_are_not_delivered_are_counted_and_end_with_1(broker, capsys):
    broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="t", partition=0, times=KEPT)
    broker.faults.answer("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="t", partition=1, times=KEPT)
    assert perf(broker, "--num-records", "50") == 1
    assert "error: 50 of 50 records were not delivered: t-" in capsys.readouterr().err


def test_the_producers_metrics_can_be_printed(broker, capsys):
    assert perf(broker, "--num-records", "50", "--print-metrics") == 0
    assert re.search(r"producer-metrics:record-send-total +50\.000\n", capsys.readouterr().out)


def test_producer_options_are_taken(broker):
    assert perf(broker, "--num-records", "50", "--producer-property", "client.id=mine", "--compression-codec") == 0
    assert {seen.client_id for seen in broker.requests.of("Produce")} == {"mine"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--num-records", "0"), "'0' is not a whole number of at least 1"),
        (("--num-records", "5", "--record-size", "x"), "'x' is not a whole number of at least 1"),
        ((), "--num-records"),
        (("--num-records", "5", "--record-size", "5", "--payload-file", "f"), "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_ends_with_2(broker, capsys, arguments, said):
    with pytest.raises(SystemExit, match="2"):
        perf(broker, *arguments)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read: No such file"), (b"", "is empty")])
def test_a_payload_file_without_lines_is_an_error(broker, capsys, tmp_path, content, said):
    path = tmp_path / "payload"
    if content is not None:
        path.write_bytes(content)
    assert perf(broker, "--num-records", "5", "--payload-file", str(path)) == 1
    assert said in capsys.readouterr().err


def test_off_a_terminal_progress_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(command, "_PLAIN_LINE_EVERY_S", 0.0)
    with live_line(100) as show:
        show(40, Report(100))
    assert re.fullmatch(r"40 records sent, [\d.]+ records/sec \(0.00 MB/sec\)\.\n", capsys.readouterr().err)


def test_on_a_terminal_progress_is_one_live_line(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with live_line(100) as show:
        show(40, Report(100))
    said = capsys.readouterr().err
    assert " 40% 40 records sent, " in said
    assert "\x1b[2K" in said


def test_without_rich_progress_is_still_shown(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(command, "_PLAIN_LINE_EVERY_S", 0.0)
    with live_line(100) as show:
        show(40, Report(100))
    assert "40 records sent" in capsys.readouterr().err


def test_samples_are_spread_over_all_records():
    assert [Report(records).sample_every for records in (1, 20_000, 20_001, 1_000_000)] == [1, 1, 2, 50]


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-2", "fast", "-inf"])
def test_a_throughput_that_is_no_rate_is_refused(rate, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["perf", "--bootstrap-server", "a:1", "--topic", "t", "--num-records", "1", f"--throughput={rate}"])
    assert f"'{rate}' is neither a number of records per second above 0 nor -1" in capsys.readouterr().err


@pytest.mark.parametrize("rate", ["-1", "0.5", "1000"])
def test_a_throughput_that_is_a_rate_is_taken(rate):
    arguments = ["perf", "--bootstrap-server", "a:1", "--topic", "t", "--num-records", "1", "--throughput", rate]
    assert parser().parse_args(arguments).throughput == float(rate)


def test_incident_the_time_that_send_waits_was_not_part_of_the_latency(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Delivered:
        def add_done_callback(self, call):
            call(self)

        def exception(self, timeout):
            return None

    class Waiting:
        """Waits half a second for memory, and the record is acknowledged at once."""

        def send(self, record):
            now[0] += 0.5
            return Delivered()

    report = Report(2)
    arguments = Namespace(topic="t", throughput=-1, num_records=2)
    assert list(command._send(Waiting(), arguments, [b"value"], report)) == [2]
    report.end()
    assert "500.00 ms avg latency, 500.00 ms max latency" in report.total()
