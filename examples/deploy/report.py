"""Tries the installed package on your Kafka and your Spark, and prints a table in Markdown to paste into an issue.

    python report.py --bootstrap-server kafka1:9093 --command-config client.properties --master spark://master:7077
    spark-submit --master yarn report.py --bootstrap-server kafka1:9093 --command-config client.properties

It takes the options of `spark-kafka-sink selftest`, and runs the steps of `spark-kafka-sink check --exactly-once`, then
selftest, which writes with both guarantees. The table has versions and results, without hosts, users, paths and
secrets. The commands' own lines, which name hosts and users, go to standard error.
"""

import argparse
import io
import platform
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.tools.cli.command_line import client_config
from spark_kafka_sink.tools.cli.main import main as run_command
from spark_kafka_sink.tools.cli.main import parser
from spark_kafka_sink.tools.connection_check import CheckRequest, check
from spark_kafka_sink.tools.exactly_once_trial import try_exactly_once
from spark_kafka_sink.tools.findings import Finding, Outcome, library_findings, printed, required_libraries

OUTCOMES = [each.value for each in Outcome]
ENDS = {0: "ok", 1: "FAILED", 2: "could not run", 130: "interrupted"}


class Shown(io.StringIO):
    """Standard output that is kept for the table, and shown on standard error as it comes."""

    def write(self, text: str) -> int:
        sys.stderr.write(text)
        return super().write(text)


def main(words: Sequence[str]) -> int:
    arguments = parser().parse_args(["selftest", *words])
    with redirect_stdout(sys.stderr):
        findings = checked(arguments)
    with redirect_stdout(Shown()) as shown:
        code = run_command(["selftest", *words])
    # Those that are left out have versions, which the first row has, too.
    lines = [line for line in shown.getvalue().splitlines() if ": " in line or line.startswith("untested ")]
    print("| | |\n|---|---|")
    for what, text in [versions(), *steps(findings), *map(cells, lines), ("selftest", ENDS[code])]:
        print(f"| {what} | {text} |")
    return code or int(any(each.outcome is Outcome.FAILED for each in findings))


def versions() -> tuple[str, str]:
    libraries = (f"{each.step} {each.text}" for each in library_findings(required_libraries()))
    return "versions", ", ".join((f"{platform.system()} {platform.machine()}", *libraries))


def checked(arguments: argparse.Namespace) -> list[Finding]:
    """The findings of `check`. It tries exactly-once unless selftest is to write nothing, or to an existing ledger."""
    try:
        config = client_config(arguments)
    except ConfigError:
        return []  # selftest says why
    ledger = arguments.ledger_topic or arguments.prefix
    request = CheckRequest(config, arguments.topic, arguments.prefix, ledger)
    findings = [*printed(check(request, SystemClock()))]
    responds = any(each.step == "brokers" and each.outcome is Outcome.OK for each in findings)
    if responds and not arguments.no_write and arguments.ledger_topic is None:
        findings += printed(try_exactly_once(request, SystemClock()))
    return findings


def steps(findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """A row for each step of the check. Only its name and outcomes, because the rest of a finding may name hosts."""
    outcomes: dict[str, dict[str, None]] = {}
    for each in findings:
        outcomes.setdefault(each.step, {})[each.outcome.value] = None
    return [(f"check: {step}", ", ".join(found)) for step, found in outcomes.items()]


def cells(line: str) -> tuple[str, str]:
    """A row for a line of selftest, which is `outcome step: text`, `outcome step` or `what: text`."""
    outcome, _, step = line.partition(" ")
    if outcome not in OUTCOMES:
        what, _, text = line.partition(": ")
        return what, text
    what, colon, text = step.strip().partition(": ")
    return what, f"{outcome}{colon}{text}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
