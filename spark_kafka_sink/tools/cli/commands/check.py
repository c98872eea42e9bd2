"""``spark-kafka-sink check``: shows whether this machine reaches the brokers, and what the principal may do there."""

from __future__ import annotations

import argparse
from typing import Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.spark.options import LEDGER_TOPIC
from spark_kafka_sink.tools.cli.command_line import (
    add_client_options,
    add_cluster,
    checked_names,
    client_config,
)
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.findings import Outcome, conclusion, printed

SUMMARY = "try each step of a connection to the brokers: DNS, TCP, TLS, SASL, versions, rights"

DESCRIPTION = """\
Tries each step of a connection from this machine to the brokers: DNS, TCP, TLS, ApiVersions, SASL. If a
step fails, it says what to look at. Then it checks the rights of the principal. It connects once to each
broker, stops after a refused login, and never shows a secret. Without --exactly-once it writes nothing, and
shows as untested what cannot be tested without writing.

With --exactly-once, it creates a ledger, writes and reads a record, commits and aborts a transaction, and
deletes the topic. The names of the topic and the transactional id are those of --ledger-topic and
--transactional-id-prefix with a random suffix, so that prefixed ACLs apply to them.

It needs no Spark. `spark-kafka-sink selftest --no-write` repeats it on each executor.

The exit code is 0 if no step failed, and 1 otherwise."""

EXAMPLES = """\
examples:
  spark-kafka-sink check --bootstrap-server kafka1:9093,kafka2:9093 --command-config client.properties --topic events
  spark-kafka-sink check --bootstrap-server kafka1:9093 --command-config client.properties --exactly-once \\
      --transactional-id-prefix orders          tries everything that exactly-once needs

client.properties has the kafka.* options of the job with or without the prefix kafka., for example:
  security.protocol=SASL_SSL
  ssl.truststore.location=ca.pem
  sasl.mechanism=SCRAM-SHA-512
  sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
      username="alice" password="…";"""

_ID_SUFFIX: Final = "-check-00000000-driver"
"""A suffix as long as the one that ``--exactly-once`` appends to the prefix."""


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


def run(arguments: argparse.Namespace) -> int:
    checked_names({
        "--topic": (arguments.topic, ""),
        "--transactional-id-prefix": (arguments.transactional_id_prefix, _ID_SUFFIX),
        "--ledger-topic": (arguments.ledger_topic, ""),
    })  # fmt: skip
    request = CheckRequest(
        client_config(arguments), arguments.topic, arguments.transactional_id_prefix, arguments.ledger_topic
    )
    findings = [*printed(check(request, SystemClock()))]
    responds = any(finding.step == "brokers" and finding.outcome is Outcome.OK for finding in findings)
    if arguments.exactly_once and responds:
        from spark_kafka_sink.tools.exactly_once_trial import try_exactly_once

        findings += printed(try_exactly_once(request, SystemClock()))
    print(conclusion(findings), flush=True)
    return 1 if any(finding.outcome is Outcome.FAILED for finding in findings) else 0
