"""``spark-kafka-sink perf``: throughput and latency of this producer on a cluster."""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.producer.append.future_record_metadata import FutureRecordMetadata
from spark_kafka_sink.producer.append.record import ProducerRecord
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.tools.cli.command_line import (
    Subparsers,
    add_command,
    add_producer_options,
    at_least_one,
    number_or_nan,
    producer_options,
)

DESCRIPTION = """\
Sends records of one size, or the lines of a file, at full speed or at a given rate. At the end, prints
the same line as Kafka's kafka-producer-perf-test: records and MB (2^20 bytes) per second from the first
send to the last acknowledgement, and the latency from send to acknowledgement in ms (average, maximum and
percentiles of 20,000 evenly spread records). The exit code is 1 if a record was not delivered."""

EXAMPLES = """\
examples:
  spark-kafka-sink perf --bootstrap-server localhost:9092 --topic perf --num-records 1000000 --record-size 100
  spark-kafka-sink perf --bootstrap-server localhost:9092 --topic perf --num-records 60000 --throughput 1000 \\
      --producer-property linger.ms=0
  spark-kafka-sink perf --bootstrap-server localhost:9092 --topic perf --num-records 500000 \\
      --payload-file lines.txt --compression-codec zstd --print-metrics"""

_RANDOM_PAYLOADS = 1024
_RANDOM_BYTES = 1 << 26
_LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))
_LARGEST_RECORD = (1 << 31) - 1
_BLOCK = 500
"""Records between two updates of the rate and the progress line."""

MB = 1 << 20
SAMPLES = 20_000
PERCENTILES = (0.5, 0.95, 0.99, 0.999)

_PLAIN_LINE_EVERY_S = 5.0

Show = Callable[[int, "Report"], None]


def add_to(commands: Subparsers) -> None:
    perf = add_command(commands, run, "perf", "measure the producer's throughput and latency", DESCRIPTION, EXAMPLES)
    add_producer_options(perf)
    perf.add_argument("--num-records", type=at_least_one, required=True, metavar="N", help="number of records to send")
    payload = perf.add_mutually_exclusive_group()
    payload.add_argument(
        "--record-size", type=_record_size, default=100, metavar="BYTES",
        help="size of each value, which consists of random capital letters (default: %(default)s)",
    )  # fmt: skip
    payload.add_argument("--payload-file", type=Path, metavar="FILE", help="send the lines of this file, repeatedly")
    perf.add_argument(
        "--throughput", type=_rate, default=-1.0, metavar="RATE", help="records per second (default: -1, no limit)"
    )
    perf.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")


def run(arguments: argparse.Namespace) -> int:
    payloads = _payloads(arguments)
    with KafkaProducer(producer_options(arguments)) as producer:
        producer.partitions_for(arguments.topic)  # connect before the measurement
        report = Report(arguments.num_records)
        with live_line(arguments.num_records) as show:
            for sent in _send(producer, arguments, payloads, report):
                show(sent, report)
            producer.flush()
            show(arguments.num_records, report)
        report.end()
        metrics = producer.metrics()
    print(report.total())
    if arguments.print_metrics:
        _print_metrics(metrics)
    failed = int(metrics["producer-metrics"]["record-error-total"])
    if failed:
        reason = f": {report.first_error}" if report.first_error is not None else "."
        raise KafkaError(f"{failed} of {arguments.num_records} records were not delivered{reason}")
    return 0


def _send(
    producer: KafkaProducer, arguments: argparse.Namespace, payloads: list[bytes], report: Report
) -> Iterator[int]:
    """Sends all records; yields the number sent after each block."""
    topic = arguments.topic
    rate = arguments.throughput
    block = _BLOCK if rate <= 0 else max(1, min(_BLOCK, int(rate / 100)))
    values = islice(cycle(payloads), arguments.num_records)
    sent = 0
    while chunk := list(islice(values, block)):
        for value in chunk:
            sample = not sent % report.sample_every
            sent_at = time.monotonic() if sample else 0.0
            future = producer.send(ProducerRecord(topic, value))
            if sample:
                report.watch(future, sent_at)
            sent += 1
        report.sent(sum(map(len, chunk)))
        yield sent
        if rate > 0:
            time.sleep(max(0.0, report.started + sent / rate - time.monotonic()))


def _payloads(arguments: argparse.Namespace) -> list[bytes]:
    if arguments.payload_file is None:
        size = arguments.record_size
        count = min(_RANDOM_PAYLOADS, arguments.num_records, max(1, _RANDOM_BYTES // size))
        source = random.Random(0)
        return [source.randbytes(size).translate(_LETTERS) for _ in range(count)]
    try:
        lines: list[bytes] = arguments.payload_file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError([f"--payload-file {arguments.payload_file} cannot be read: {error.strerror}."]) from error
    if not lines:
        raise ConfigError([f"--payload-file {arguments.payload_file} is empty."])
    return lines


def _print_metrics(metrics: dict[str, dict[str, float]]) -> None:
    print()
    for group, values in metrics.items():
        for name, value in values.items():
            print(f"{group}:{name:<28} {value:.3f}")


def _record_size(text: str) -> int:
    if (size := at_least_one(text)) > _LARGEST_RECORD:
        raise argparse.ArgumentTypeError(f"{text} is more than a Kafka record can have: {_LARGEST_RECORD}")
    return size


def _rate(text: str) -> float:
    rate = number_or_nan(text)
    if rate == -1 or 0 < rate < math.inf:
        return rate
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number of records per second above 0 nor -1 for no limit")


class Report:
    """Throughput, and the latencies of at most ``SAMPLES`` evenly spread records: a callback per record costs time."""

    def __init__(self, records: int) -> None:
        self.sample_every = -(-records // SAMPLES)
        self.started = time.monotonic()
        self.first_error: Exception | None = None
        self._records = records
        self._bytes = 0
        self._latencies: list[float] = []
        self._elapsed = 0.0

    def sent(self, size: int) -> None:
        """Counts ``size`` more bytes of values."""
        self._bytes += size

    def watch(self, future: FutureRecordMetadata, sent_at: float) -> None:
        """Measures the latency of a record, with the time that ``send`` waited. ``sent_at``: monotonic s, before it."""

        def completed(future: FutureRecordMetadata) -> None:
            error = future.exception(0)
            if error is None:
                self._latencies.append(time.monotonic() - sent_at)
            else:
                self.first_error = self.first_error or error

        future.add_done_callback(completed)

    def end(self) -> None:
        """Notes the end: all records are acknowledged."""
        self._elapsed = time.monotonic() - self.started

    def so_far(self, sent: int) -> str:
        elapsed = max(time.monotonic() - self.started, 1e-3)
        return f"{sent} records sent, {self._rates(sent, elapsed)}"

    def total(self) -> str:
        """The last line of kafka-producer-perf-test."""
        latencies = sorted(1000.0 * each for each in self._latencies)
        average = sum(latencies) / len(latencies) if latencies else 0.0
        shown = [f"{_percentile(latencies, share):.0f} ms {100 * share:g}th" for share in PERCENTILES]
        return (
            f"{self._records} records sent, {self._rates(self._records, self._elapsed)}, {average:.2f} ms avg latency, "
            f"{_percentile(latencies, 1.0):.2f} ms max latency, {', '.join(shown)}."
        )

    def _rates(self, sent: int, elapsed: float) -> str:
        return f"{sent / elapsed:.1f} records/sec ({self._bytes / elapsed / MB:.2f} MB/sec)"


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@contextmanager
def live_line(records: int) -> Iterator[Show]:
    """Progress on stderr: a live line on a terminal if rich is installed, else a line every 5 s."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        yield _plain_lines()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines()
        return
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}% {task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=records)

        def show(sent: int, report: Report) -> None:
            progress.update(task, completed=sent, description=report.so_far(sent))

        yield show


def _plain_lines() -> Show:
    shown_at = time.monotonic()

    def show(sent: int, report: Report) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _PLAIN_LINE_EVERY_S:
            shown_at = time.monotonic()
            print(f"{report.so_far(sent)}.", file=sys.stderr, flush=True)

    return show
