"""``spark-kafka-sink exporter``: metrics of receipts for Prometheus and OTLP."""

from __future__ import annotations

import argparse
import importlib.util
import time
from contextlib import ExitStack, closing
from typing import Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.spark.receipts.exporter import MOST_SERIES, Exporter
from spark_kafka_sink.tools.cli.command_line import Subparsers, above_zero, add_command, at_least_one
from spark_kafka_sink.tools.cli.receipts import add_source, open_source

NEEDS: Final = ("opentelemetry", "prometheus_client")

DESCRIPTION = """\
Serves the receipts of queries as metrics: rows, bytes, latency, retries, and how tasks spend their time.
The sink writes receipts if a query has the option receiptsPath or receiptsTopic. The exporter first reads
all existing receipts. Then it starts to serve metrics, and reads new receipts as they are written.
The page Operations of the documentation lists the metrics, and links a Grafana dashboard and alert rules.

The command needs an extra: pip install 'spark-kafka-sink[exporter]'"""

EXAMPLES = """\
examples:
  from a receiptsTopic, scraped by a Prometheus on another machine at http://HOST:9464/metrics:
    spark-kafka-sink exporter --topic receipts --bootstrap-server broker:9092 --command-config client.properties \\
        --listen 0.0.0.0:9464
  from a receiptsPath, also sent to an OpenTelemetry collector:
    spark-kafka-sink exporter --path s3://bucket/receipts --otlp http://collector:4318/v1/metrics"""


def add_to(commands: Subparsers) -> None:
    command = add_command(commands, run, "exporter", "serve receipts as Prometheus metrics", DESCRIPTION, EXAMPLES)
    add_source(command)
    command.add_argument(
        "--listen",
        default="127.0.0.1:9464",
        metavar="HOST:PORT",
        help="address to serve /metrics at; 0.0.0.0 means every interface (default: %(default)s)",
    )
    command.add_argument(
        "--otlp", type=_http_url, metavar="URL", help="also send metrics to this OTLP endpoint (HTTP, protobuf)"
    )
    command.add_argument(
        "--otlp-interval", type=above_zero, default=10.0, metavar="SECONDS", help="time between two sends (default: 10)"
    )
    command.add_argument(
        "--interval", type=above_zero, default=1.0, metavar="SECONDS",
        help="time between two reads of receipts (default: 1)",
    )  # fmt: skip
    command.add_argument(
        "--max-series", type=at_least_one, default=MOST_SERIES, metavar="N",
        help="limit on combinations of query, topic and partition (default: %(default)s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise KafkaError(f"{', '.join(missing)} not installed: pip install 'spark-kafka-sink[exporter]'")
    from spark_kafka_sink.spark.receipts.otlp import OtlpSender
    from spark_kafka_sink.spark.receipts.prometheus import serve

    host, port = _address(arguments.listen)
    clock = SystemClock()
    with ExitStack() as stack:
        reader = stack.enter_context(closing(open_source(arguments, clock, None)))
        exporter = Exporter(reader, clock, arguments.max_series)
        exporter.read_all()
        try:
            port = serve(exporter, host, port, clock)
        except OSError as error:
            raise KafkaError(f"--listen {arguments.listen}: {error.strerror or error}") from error
        sender = None
        if arguments.otlp is not None:
            sender = stack.enter_context(closing(OtlpSender(exporter, clock, arguments.otlp)))
        print(f"serving http://{host}:{port}/metrics", flush=True)
        send_at = clock.now()
        while True:
            if sender is not None and clock.now() >= send_at:
                sender.send()
                send_at = clock.now() + arguments.otlp_interval * 1000
            time.sleep(arguments.interval)
            exporter.read()


def _http_url(text: str) -> str:
    if not text.lower().startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form http://HOST:4318/v1/metrics")
    return text


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise ConfigError([f"--listen {text} is not of the form HOST:PORT."])
    return host.strip("[]"), int(port)
