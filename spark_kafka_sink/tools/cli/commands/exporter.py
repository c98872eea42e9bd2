"""``spark-kafka-sink exporter``: metrics of receipts for Prometheus."""

from __future__ import annotations

import argparse
import importlib.util
import time
from contextlib import closing

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.tools.cli.command_line import (
    above_zero,
    add_client_options,
    add_cluster,
    at_least_one,
    client_config,
)
from spark_kafka_sink.tools.exporter import MAX_SERIES, Exporter, TopicReceipts

SUMMARY = "serve receipts as Prometheus metrics"

DESCRIPTION = """\
Serves the receipts of queries with the option receiptsTopic as metrics: rows, bytes, latency, retries, and
how tasks spend their time. It first reads all existing receipts, and then serves metrics.
The page Operations of the documentation lists the metrics, and links a Grafana dashboard and alert rules.

The command needs an extra: pip install 'spark-kafka-sink[exporter]'"""

EXAMPLES = """\
examples:
  scraped by a Prometheus on another machine at http://HOST:9464/metrics:
    spark-kafka-sink exporter --topic receipts --bootstrap-server broker:9092 --command-config client.properties \\
        --listen 0.0.0.0:9464"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_cluster(command)
    command.add_argument("--topic", required=True, help="the receiptsTopic")
    add_client_options(command)
    command.add_argument(
        "--listen",
        default="127.0.0.1:9464",
        metavar="HOST:PORT",
        help="address to serve /metrics at; 0.0.0.0 means every interface (default: %(default)s)",
    )
    command.add_argument(
        "--interval", type=above_zero, default=1.0, metavar="SECONDS",
        help="time between two reads of receipts (default: 1)",
    )  # fmt: skip
    command.add_argument(
        "--max-series", type=at_least_one, default=MAX_SERIES, metavar="N",
        help="limit on combinations of query, topic and partition (default: %(default)s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("prometheus_client") is None:
        raise KafkaError("prometheus_client not installed: pip install 'spark-kafka-sink[exporter]'")
    from spark_kafka_sink.tools.exporter import serve

    host, port = _address(arguments.listen)
    clock = SystemClock()
    with closing(TopicReceipts(client_config(arguments), arguments.topic, clock)) as reader:
        exporter = Exporter(reader, clock, arguments.max_series)
        exporter.read_all()
        try:
            port = serve(exporter, host, port)
        except OSError as error:
            raise KafkaError(f"--listen {arguments.listen}: {error.strerror or error}") from error
        print(f"serving http://{host}:{port}/metrics", flush=True)
        while True:
            time.sleep(arguments.interval)
            exporter.read()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ConfigError([f"--listen {text} is not of the form HOST:PORT."])
    return host.strip("[]"), int(port)
