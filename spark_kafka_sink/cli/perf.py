"""``spark-kafka-sink perf``: how fast this producer writes to that cluster."""

from __future__ import annotations

import argparse
import math
import random
import string
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.append.record import ProducerRecord
from spark_kafka_sink.cli.perf_report import Report, live_line
from spark_kafka_sink.cli.producer_options import add_producer_options, producer_config
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.producer.producer import KafkaProducer

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DESCRIPTION = """\
Sends records of one size, or those of a file, as fast as it can or at a given rate, and prints what
Kafka's kafka-producer-perf-test prints: records and MB (2^20 bytes) per second from the first send to
the last acknowledgement, and how long records took from send to acknowledgement: average, maximum,
and percentiles, in ms, of 20,000 records evenly spread over all. The exit code is 1 when a record was
not delivered."""

EXAMPLES = """\
examples:
  spark-kafka-sink perf --bootstrap-server localhost:9092 --topic perf --num-records 1000000 --record-size 100
  spark-kafka-sink perf --bootstrap-server localhost:9092 --topic perf --num-records 60000 --throughput 1000 \\
      --producer-property linger.ms=0
  spark-kafka-sink perf --bootstrap-server localhost:9092 --topic perf --num-records 500000 \\
      --payload-file lines.txt --compression-codec zstd --print-metrics"""

_RANDOM_PAYLOADS = 1024
_BLOCK = 500
"""Records between two looks at the clock for the rate and the progress line."""


def add_to(commands: Subparsers) -> None:
    perf = commands.add_parser(
        "perf",
        help="measure how fast records go out",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_producer_options(perf)
    perf.add_argument("--num-records", type=_positive, required=True, metavar="N", help="how many records to send")
    payload = perf.add_mutually_exclusive_group()
    payload.add_argument(
        "--record-size", type=_positive, default=100, metavar="BYTES",
        help="size of each value, random capital letters (default: %(default)s)",
    )  # fmt: skip
    payload.add_argument("--payload-file", type=Path, metavar="FILE", help="send its lines instead, again and again")
    perf.add_argument(
        "--throughput", type=_rate, default=-1.0, metavar="RATE", help="records per second; -1, the default: no limit"
    )
    perf.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    perf.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    payloads = _payloads(arguments)
    with KafkaProducer(producer_config(arguments)) as producer:
        producer.partitions_for(arguments.topic)  # what it takes to connect is not what is measured
        report = Report(arguments.num_records)
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
    """Sends everything; gives how many are sent after each block."""
    topic = arguments.topic
    rate = arguments.throughput
    block = _BLOCK if rate <= 0 else max(1, min(_BLOCK, int(rate / 100)))
    values = islice(cycle(payloads), arguments.num_records)
    sent = 0
    while chunk := list(islice(values, block)):
        for value in chunk:
            future = producer.send(ProducerRecord(topic, value))
            if not sent % report.sample_every:
                report.watch(future)
            sent += 1
        report.sent(sum(map(len, chunk)))
        yield sent
        if rate > 0:
            time.sleep(max(0.0, report.started + sent / rate - time.monotonic()))


def _payloads(arguments: argparse.Namespace) -> list[bytes]:
    if arguments.payload_file is None:
        letters = random.Random(0)
        return [
            "".join(letters.choices(string.ascii_uppercase, k=arguments.record_size)).encode()
            for _ in range(min(_RANDOM_PAYLOADS, arguments.num_records))
        ]
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


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if rate == -1 or 0 < rate < math.inf:
        return rate
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number of records per second above 0 nor -1 for no limit")


def _positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number
