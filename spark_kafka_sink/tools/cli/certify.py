"""``spark-kafka-sink certify``: the sink on the user's own Spark and brokers, and a verdict to paste into an issue."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from spark_kafka_sink.common.config.table import OWN_NAMES
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.options import KAFKA_PREFIX, LEDGER_TOPIC
from spark_kafka_sink.tools.certification import ROWS, TIMEOUT_S
from spark_kafka_sink.tools.cli.command_line import (
    Subparsers,
    above_zero,
    add_client_options,
    add_cluster,
    add_command,
    add_spark_options,
    at_least_one,
    checked_names,
    client_config,
    client_options,
    spark_settings,
)
from spark_kafka_sink.tools.connection_check.exactly_once_trial import DEFAULT_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION = """\
Tries the sink on your own Spark and brokers. It starts Spark and writes a batch job and a streaming query,
at least once and exactly once. The query is stopped and continues from its checkpoint. Then it reads every
row back and compares key and value: with librdkafka if confluent-kafka is installed and can log in, else
with the package's own reader. The exactly-once batch job runs again with the same txnAppId and txnVersion,
which must not add a row.

Before it starts Spark, it goes through the steps of `check`, and before the exactly-once writes through
those of `check --exactly-once`, so it reports a refused login or a missing right in the same words.

It prints each step, and at the end a verdict to paste into an issue: versions of platform, Spark, Python and
libraries, what the brokers report about themselves, each step with rows and rows/s. `certify` replaces
passwords, users and host names in the verdict. It recognises those in your options, and others by what they
look like. Names of topics and paths stay, so read the verdict before you post it.

The writes use four topics, a ledger and transactional ids of their own, whose names begin with --topics,
--commit-log-topic and --transactional-id-prefix, so that prefixed ACLs apply to them, and checkpoints in
--checkpoint-location. All but the transactional ids, which the brokers forget by themselves, are deleted at
the end, also if a step fails, after Ctrl-C or SIGTERM, and when the terminal is closed. The principal needs
CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE and DELETE on topics whose names begin with --topics and
--commit-log-topic, and WRITE on transactional ids that begin with --transactional-id-prefix.

On Spark 3.5, which has no Python data sources, it writes with write_kafka and kafka_batches. With --remote,
this machine must reach the brokers, too, and the checkpoints stay in --checkpoint-location: delete them
yourself.

The exit code is 0 only if every step worked."""

EXAMPLES = """\
examples:
  spark-kafka-sink certify --bootstrap-server kafka1:9092
  spark-kafka-sink certify --bootstrap-server kafka1:9093 --command-config client.properties \\
      --master spark://master:7077 --conf spark.executor.memory=1g --rows 1000000
  spark-kafka-sink certify --bootstrap-server kafka1:9093 --command-config client.properties \\
      --topics orders --transactional-id-prefix orders      names for which the principal has rights
  spark-kafka-sink certify --bootstrap-server kafka1:9092 --remote sc://spark:15002 \\
      --checkpoint-location s3a://bucket/checkpoints

In a notebook, with the session that is there: spark_kafka_sink.certify(spark, options)"""

_SUFFIX = "-certify-00000000-stream-driver"
_PROGRESS_BAR = "spark.ui.showConsoleProgress"


def add_to(commands: Subparsers) -> None:
    summary = "write and read back with your own Spark and brokers, and print a verdict"
    command = add_command(commands, run, "certify", summary, DESCRIPTION, EXAMPLES)
    add_cluster(command)
    add_client_options(command)
    command.add_argument(
        "--topics", default=DEFAULT_PREFIX, metavar="PREFIX", help="prefix of the topics (default: %(default)s)"
    )
    command.add_argument(
        "--transactional-id-prefix", default=DEFAULT_PREFIX, metavar="PREFIX",
        help="prefix of the transactional ids, as the option transactionalIdPrefix (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--commit-log-topic", default=LEDGER_TOPIC, metavar="TOPIC",
        help="prefix of the ledger, as the option commitLogTopic (default: %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--rows", type=at_least_one, default=ROWS, metavar="N", help="rows of each write (default: %(default)s)"
    )
    command.add_argument(
        "--timeout", type=above_zero, default=TIMEOUT_S, metavar="SECONDS",
        help=f"how long each Spark job may take (default: {TIMEOUT_S:g})",
    )  # fmt: skip
    group = command.add_argument_group("Spark")
    add_spark_options(group)
    group.add_argument(
        "--checkpoint-location", metavar="DIR",
        help="folder for the query's checkpoints that Spark's driver can write to, a path or a URI (default: a "
        "temporary folder; required with --remote)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    checked_names({
        "--topics": (arguments.topics, ""),
        "--transactional-id-prefix": (arguments.transactional_id_prefix, _SUFFIX),
        "--commit-log-topic": (arguments.commit_log_topic, ""),
        "--checkpoint-location": (arguments.checkpoint_location, ""),
    })  # fmt: skip
    if importlib.util.find_spec("pyspark") is None:
        raise KafkaError("certify needs PySpark: pip install 'pyspark>=3.5'")
    from spark_kafka_sink.tools.certification.certify import certified
    from spark_kafka_sink.tools.certification.plan import Plan

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # on Ctrl-C it logs each call
    if not logging.getLogger("spark_kafka_sink").isEnabledFor(logging.DEBUG):
        logging.getLogger("spark_kafka_sink").setLevel(logging.WARNING)  # the steps show it
    # Wrong options are told before Spark starts, and Kafka's by the names that a client.properties file has.
    client_config(arguments)
    plan = Plan.of(_sink_options(arguments), arguments.rows, is_connect=arguments.remote is not None)
    settings = spark_settings(arguments)
    if arguments.remote is None:
        settings = {_PROGRESS_BAR: "false", **settings}  # the steps show progress, on the same terminal
    return 0 if certified(_session(settings), plan, arguments.timeout).worked else 1


@contextmanager
def _session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts Spark, and stops it at the end. Signals interrupt the run from then on."""
    from spark_kafka_sink.spark.sessions import register_format
    from spark_kafka_sink.tools.certification.writes import has_format
    from spark_kafka_sink.tools.cli.job import spark_session

    # Spark's JVM inherits that SIGHUP is ignored. Otherwise it would end when the terminal is closed, and checkpoints
    # would stay, because they are removed through the JVM.
    handled_before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    start = _Start()
    with ExitStack() as stack:
        try:
            spark = stack.enter_context(spark_session("spark-kafka-sink certify", settings))
        finally:  # also if Spark does not start: the run goes on with its verdict
            start.ended()
        if handled_before is not signal.SIG_IGN:  # as nohup does
            signal.signal(signal.SIGHUP, _hung_up)
        if has_format():
            register_format(spark)  # as jobs/ do: then it runs like all other Python code
        yield spark


class _Start:
    """Delays the first Ctrl-C or SIGTERM until Spark has started.

    Otherwise Spark's JVM may run for ever, because an interrupted PySpark 4.2 removes the folder by which the JVM tells
    it its port (``pyspark.java_gateway.launch_gateway``).
    """

    def __init__(self) -> None:
        self._interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)

    def ended(self) -> None:
        """Raises ``KeyboardInterrupt`` if a signal was delayed. Later signals raise it as they arrive."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        if self._interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True
        print("Interrupted: ends as soon as Spark has started.", file=sys.stderr)


def _hung_up(number: int, frame: FrameType | None) -> None:
    """Ends the run as Ctrl-C does. Ignores the second SIGHUP, which the kernel sends after that of the shell."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt


def _sink_options(arguments: argparse.Namespace) -> dict[str, object]:
    given = client_options(arguments).items()
    kafka = {name if name in OWN_NAMES else f"{KAFKA_PREFIX}{name}": value for name, value in given}
    return {
        **kafka,
        f"{KAFKA_PREFIX}bootstrap.servers": arguments.bootstrap_server,
        "topic": arguments.topics,
        "transactionalIdPrefix": arguments.transactional_id_prefix,
        "commitLogTopic": arguments.commit_log_topic,
        "checkpointLocation": arguments.checkpoint_location,
    }
