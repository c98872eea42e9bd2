"""``spark-kafka-sink check``: does this machine reach the brokers, and what may the principal do there."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.spark.options import LEDGER_TOPIC
from spark_kafka_sink.tools.cli.command_line import (
    above_zero,
    add_client_options,
    add_cluster,
    add_spark_options,
    at_least_one,
    checked_names,
    client_config,
    spark_settings,
)
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome, Printer, conclusion, library_findings, required_libraries

SUMMARY = "try each step of a connection to the brokers: DNS, TCP, TLS, SASL, versions, rights"

DESCRIPTION = """\
Tries each step of a connection from this machine to the brokers: DNS, TCP, TLS, ApiVersions, SASL. If a
step fails, it says what to look at. Then it checks the rights of the principal. It connects once to each
broker, stops after a refused login, and never shows a secret. Without --exactly-once it writes nothing, and
shows as untested what cannot be tested without writing.

With --exactly-once, it creates a ledger, writes and reads a record, commits and aborts a transaction, and
deletes the topic. The names of the topic and the transactional id are those of --ledger-topic and
--transactional-id-prefix with a random suffix, so that prefixed ACLs apply to them.

With --from-workers, it also runs on each executor in a Spark job, and shows what differs there, such as a
missing file or variable, or another version of a library.

The exit code is 0 if no step failed, and 1 otherwise."""

EXAMPLES = """\
examples:
  spark-kafka-sink check --bootstrap-server kafka1:9093,kafka2:9093 --command-config client.properties --topic events
  spark-kafka-sink check --bootstrap-server kafka1:9093 --command-config client.properties --exactly-once \\
      --transactional-id-prefix orders          tries everything that exactly-once needs
  spark-kafka-sink check --bootstrap-server kafka1:9093 --command-config client.properties \\
      --from-workers --master spark://master:7077 --conf spark.executor.memory=1g

client.properties has the kafka.* options of the job with or without the prefix kafka., for example:
  security.protocol=SASL_SSL
  ssl.truststore.location=ca.pem
  sasl.mechanism=SCRAM-SHA-512
  sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
      username="alice" password="…";"""

_ID_SUFFIX: Final = "-check-00000000-driver"
"""Has the length of what ``--exactly-once`` appends to the prefix."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_cluster(command)
    add_client_options(command)
    command.add_argument("--topic", help="check that this topic exists, and that the principal may write to it")
    command.add_argument(
        "--transactional-id-prefix", metavar="PREFIX",
        help="value of the option transactionalIdPrefix or txnAppId: check the rights that exactly-once needs",
    )  # fmt: skip
    command.add_argument(
        "--ledger-topic", default=LEDGER_TOPIC, metavar="TOPIC",
        help="value of the option ledgerTopic, for --transactional-id-prefix and --exactly-once "
        "(default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--exactly-once", action="store_true",
        help="try everything that exactly-once needs, with a temporary topic and transactional id",
    )  # fmt: skip
    workers = command.add_argument_group("Spark's workers")
    workers.add_argument(
        "--from-workers", action="store_true",
        help="also check from each executor of a Spark cluster, and show what differs from this machine",
    )  # fmt: skip
    add_spark_options(workers)
    workers.add_argument(
        "--tasks", type=at_least_one, metavar="N",
        help="number of tasks of the Spark job (default: one per executor; with Spark Connect: 8)",
    )  # fmt: skip
    workers.add_argument(
        "--timeout", type=above_zero, default=300.0, metavar="SECONDS",
        help="how long the start of Spark and the job may take (default: 300)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    checked_names({
        "--topic": (arguments.topic, ""),
        "--transactional-id-prefix": (arguments.transactional_id_prefix, _ID_SUFFIX),
        "--ledger-topic": (arguments.ledger_topic, ""),
    })  # fmt: skip
    request = CheckRequest(
        client_config(arguments), arguments.topic, arguments.transactional_id_prefix, arguments.ledger_topic
    )
    settings = _spark_settings(arguments)
    findings = [*Printer().all(check(request, SystemClock()))]
    tried = []
    if arguments.exactly_once and any(
        finding.step == "brokers" and finding.outcome is Outcome.OK for finding in findings
    ):
        from spark_kafka_sink.tools.exactly_once_trial import try_exactly_once

        tried = [*Printer().all(try_exactly_once(request, SystemClock()))]
    print(conclusion([*findings, *tried]), flush=True)
    failed = any(finding.outcome is Outcome.FAILED for finding in [*findings, *tried])
    if arguments.from_workers:
        from spark_kafka_sink.tools.worker_check import check_on_workers

        workers = check_on_workers(request, settings, arguments.tasks, arguments.timeout)
        for line in workers.compared([*library_findings(required_libraries()), *findings]):
            print(line)
        failed |= any(finding.outcome is Outcome.FAILED for found in workers.by_place.values() for finding in found)
    return 1 if failed else 0


def _spark_settings(arguments: argparse.Namespace) -> Mapping[str, str]:
    settings = spark_settings(arguments)
    if not arguments.from_workers:
        if settings or arguments.tasks:
            raise ConfigError(["--master, --remote, --conf and --tasks belong to --from-workers: add it."])
    elif importlib.util.find_spec("pyspark") is None:
        raise KafkaError("check --from-workers needs PySpark: pip install 'pyspark>=3.5'")
    return settings
