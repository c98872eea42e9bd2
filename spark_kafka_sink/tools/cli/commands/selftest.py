"""``spark-kafka-sink selftest``: the sink on the user's own Spark and brokers, read back and compared."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.config.other_clients import is_of_other_client
from spark_kafka_sink.common.config.producer_config import OWN_NAMES
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.tools.cli.command_line import (
    add_client_options,
    add_cluster,
    add_spark_options,
    checked_names,
    client_config,
    client_options,
    spark_settings,
)
from spark_kafka_sink.tools.trial_topics import DEFAULT_PREFIX, Existing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMMARY = "write and read back with your own Spark and brokers"

DESCRIPTION = """\
Tries the sink on your own Spark and brokers. First it tries the connection of driver and executors, as check
does, and names the step at which an executor differs, such as for a missing file. With --no-write, that is
all. Then, for each guarantee, it writes a batch job and a streaming query that is stopped and started again,
10,000 rows each, and with exactly-once the same txnVersion a second time, which must not add a row. It reads
every row back and compares it, with confluent-kafka if that is installed and can log in, else with the
package's own reader.

Standard output has no hosts, users or paths, so you can paste it into a report. The reasons for a failure
are on standard error.

The names of its topics, ledger and transactional ids begin with --prefix. The principal needs CREATE,
DESCRIBE_CONFIGS, READ, WRITE and DELETE on such topics, and WRITE on such transactional ids. Topics, ledger
and checkpoints are deleted at the end. A principal who may not create topics names existing ones by --topic
(READ, WRITE) and --ledger-topic (READ, WRITE, DESCRIBE_CONFIGS). With --remote, this machine must reach the
brokers, too, and you delete the checkpoints yourself.

The exit code is 0 if every row was read back (with --no-write: if no step failed), 1 if not, and 2 if the
test could not run."""

EXAMPLES = """\
examples:
  spark-kafka-sink selftest --bootstrap-server kafka1:9093 --command-config client.properties \\
      --prefix orders --master spark://master:7077 --conf spark.executor.memory=1g
  spark-kafka-sink selftest --bootstrap-server kafka1:9092 --remote sc://spark:15002 \\
      --checkpoint-location s3a://bucket/checkpoints
  spark-kafka-sink selftest --bootstrap-server kafka1:9093 --command-config client.properties \\
      --no-write --topic orders --master spark://master:7077

In a notebook, use the existing session: spark_kafka_sink.selftest(spark, options)"""

COULD_NOT_RUN = 2
_MAX_SUFFIX = "-00000000-00000000-stream-driver"


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_cluster(command)
    add_client_options(command)
    command.add_argument(
        "--prefix", default=DEFAULT_PREFIX, metavar="NAME",
        help="prefix of the topics, the ledger and the transactional ids (default: %(default)s)",
    )  # fmt: skip
    command.add_argument("--topic", help="an existing empty topic to write to instead of new ones; it keeps the rows")
    command.add_argument(
        "--ledger-topic", metavar="TOPIC",
        help="an existing ledger instead of a new one; it keeps the entries of this run",
    )  # fmt: skip
    command.add_argument(
        "--no-write", action="store_true",
        help="only try the connection of driver and executors, and the rights on --topic and --ledger-topic",
    )  # fmt: skip
    command.set_defaults(error_code=COULD_NOT_RUN)
    group = command.add_argument_group("Spark")
    add_spark_options(group)
    group.add_argument(
        "--checkpoint-location", metavar="DIR",
        help="folder for the query's checkpoints that Spark's driver can write to, a path or a URI (default: a "
        "temporary folder; required with --remote)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    checked_names({
        "--prefix": (arguments.prefix, _MAX_SUFFIX),
        "--topic": (arguments.topic, ""),
        "--ledger-topic": (arguments.ledger_topic, ""),
        "--checkpoint-location": (arguments.checkpoint_location, ""),
    })  # fmt: skip
    if importlib.util.find_spec("pyspark") is None:
        raise KafkaError("selftest needs PySpark: pip install 'spark-kafka-sink[spark]'")
    from spark_kafka_sink.spark.options import KAFKA_PREFIX
    from spark_kafka_sink.tools.self_test import Plan
    from spark_kafka_sink.tools.self_test import run as run_plan

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # on Ctrl-C it logs each call
    if not logging.getLogger("spark_kafka_sink").isEnabledFor(logging.DEBUG):
        logging.getLogger("spark_kafka_sink").setLevel(logging.WARNING)  # the steps show it
    client_config(arguments)  # errors use the names that a client.properties file has
    options = {
        name if name in OWN_NAMES else f"{KAFKA_PREFIX}{name}": value
        for name, value in client_options(arguments).items()
        if not is_of_other_client(name)
    }
    options["checkpointLocation"] = arguments.checkpoint_location
    existing, writes = Existing(arguments.topic, arguments.ledger_topic), not arguments.no_write
    plan = Plan.of(options, arguments.prefix, is_connect=arguments.remote is not None, existing=existing, writes=writes)
    settings = spark_settings(arguments)
    if arguments.remote is None:
        settings = {"spark.ui.showConsoleProgress": "false", **settings}  # the steps show progress
    return 0 if run_plan(_session(settings), plan) else 1


_ENDING: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _session(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Starts Spark, and stops it at the end. Ctrl-C and SIGTERM interrupt the run from then on."""
    from spark_kafka_sink.spark.kafka_write import register_format
    from spark_kafka_sink.tools.cli.job import spark_session
    from spark_kafka_sink.tools.self_test import has_format

    _interrupt_by_signals()
    with ExitStack() as stack:
        # An interrupted start could leave Spark's JVM running: PySpark 4.2 then removes the folder by which the JVM
        # passes its port to it (``pyspark.java_gateway.launch_gateway``).
        print("Starting Spark; Ctrl-C takes effect when it has started.", file=sys.stderr)
        came: list[int] = []
        for number in _ENDING:
            signal.signal(number, lambda number, _frame: came.append(number))
        spark = stack.enter_context(spark_session("spark-kafka-sink selftest", settings))
        _interrupt_by_signals()
        if came:
            raise KeyboardInterrupt
        if has_format():
            register_format(spark)  # as jobs/ do: then it runs like all other Python code
        yield spark


def _interrupt_by_signals() -> None:
    """Ctrl-C and SIGTERM raise ``KeyboardInterrupt``. Spark's start replaces the handler of Ctrl-C."""
    for number in _ENDING:
        signal.signal(number, signal.default_int_handler)
