"""``spark-kafka-sink check``: does this machine reach the brokers, and what may the principal do there."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.cli.arguments import add_client_options, add_command, client_config
from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.connection_check.check import CheckRequest, check
from spark_kafka_sink.connection_check.finding import Finding, Outcome
from spark_kafka_sink.spark.options import LEDGER_TOPIC

if TYPE_CHECKING:
    from spark_kafka_sink.cli.arguments import Subparsers

DESCRIPTION = """\
Tries each step from this machine to the brokers: DNS, TCP, TLS, ApiVersions, SASL. Shows how long each
took, the broker's certificate, and for a step that fails what to look at. Then asks the brokers what
the principal may do.

Connects once to each bootstrap server, then to each other broker. After a refused login it stops.
It writes nothing to the cluster, creates no topic and fences no transactional id. Shows no secret.

The exit code is 0 if no step failed, else 1. Steps that cannot be tested without writing are shown as
untested."""

EXAMPLES = """\
examples:
  spark-kafka-sink check --bootstrap-server kafka1:9092
  spark-kafka-sink check --bootstrap-server kafka1:9093,kafka2:9093 --command-config client.properties --topic events
  spark-kafka-sink check --bootstrap-server kafka1:9093 --command-config client.properties --topic events \\
      --transactional-id-prefix orders          what deliveryGuarantee=exactly-once needs, too

client.properties, for example (the kafka.* options of the job, without the prefix kafka.):
  security.protocol=SASL_SSL
  ssl.truststore.location=ca.pem
  sasl.mechanism=SCRAM-SHA-512
  sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
      username="alice" password="…";"""

_WIDTH: Final = 110
_INDENT: Final = 2
_OUTCOME: Final = 9
_STEP: Final = 12
_TIME: Final = 10


def add_to(commands: Subparsers) -> None:
    summary = "try each step to the brokers: DNS, TCP, TLS, SASL, versions, rights"
    command = add_command(commands, run, "check", summary, DESCRIPTION, EXAMPLES)
    command.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="brokers, separated by commas")
    add_client_options(command)
    command.add_argument("--topic", help="topic to write to: does it exist, may the principal write to it")
    command.add_argument(
        "--transactional-id-prefix", metavar="PREFIX",
        help="the option transactionalIdPrefix: what exactly-once needs, rights on these transactional ids and on the "
        "commitLogTopic",
    )  # fmt: skip
    command.add_argument(
        "--commit-log-topic", default=LEDGER_TOPIC, metavar="TOPIC",
        help="the option commitLogTopic, for --transactional-id-prefix (default: %(default)s)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    request = CheckRequest(
        client_config(arguments), arguments.topic, arguments.transactional_id_prefix, arguments.commit_log_topic
    )
    findings: list[Finding] = []
    for finding in check(request, SystemClock()):
        if not findings or finding.subject != findings[-1].subject:
            print(finding.subject)
        print(_lines(finding), flush=True)
        findings.append(finding)
    print(_conclusion(findings))
    return 1 if any(each.outcome is Outcome.FAILED for each in findings) else 0


def _lines(finding: Finding) -> str:
    took = "" if finding.elapsed_ms is None else f"{finding.elapsed_ms:.1f} ms"
    head = f"{'':{_INDENT}}{finding.outcome.value:{_OUTCOME}}{finding.step:{_STEP}}{took:>{_TIME}}  "
    texts = [
        line
        for text in finding.text.splitlines()
        for line in textwrap.wrap(text, _WIDTH - len(head), break_long_words=False, break_on_hyphens=False)
    ]
    return f"\n{'':{len(head)}}".join([head + (texts[0] if texts else ""), *texts[1:]])


def _conclusion(findings: list[Finding]) -> str:
    failed = [each for each in findings if each.outcome is Outcome.FAILED]
    if failed:
        return f"{len(failed)} of {len(findings)} steps failed, first {failed[0].step} of {failed[0].subject}"
    untested = sum(each.outcome is Outcome.UNTESTED for each in findings)
    return "no step failed" + (f", {untested} could not be tested" if untested else "")
