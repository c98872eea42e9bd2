"""The common parts of the jobs for ``spark-submit``: command line, source, session, error. ``selftest`` also uses the
session."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.caller_job import reason
from spark_kafka_sink.spark.kafka_write import register_format
from spark_kafka_sink.spark.options import KAFKA_PREFIX
from spark_kafka_sink.tools.cli.command_line import (
    OTHERS_CAN_READ,
    CommandParser,
    add_pairs,
    plain_config_warnings,
    read_properties,
)


def parser(description: str, examples: str) -> argparse.ArgumentParser:
    """The command line of both jobs."""
    job = CommandParser(description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = job.add_argument_group("source of the rows")
    source.add_argument(
        "--source-format", required=True, metavar="NAME", help="any Spark source: parquet, csv, jdbc, kafka, …"
    )
    source.add_argument("--path", help="file or folder to read")
    source.add_argument("--schema", metavar="DDL", help='columns of the source, as in "id INT, name STRING"')
    add_pairs(source, "--source-option", text="an option of the source; may be repeated")

    record = job.add_argument_group("columns of the records (default: the columns of the source)")
    record.add_argument("--key", metavar="SQL", help="the record's key, a string or binary")
    record.add_argument("--value", metavar="SQL", help='its value, a string or binary, such as "to_json(struct(*))"')
    text = "topic, partition, headers or timestamp: topic=\"'t-' || region\""
    add_pairs(record, "--column", text=text, value="SQL")

    sink = job.add_argument_group("sink")
    text = f"topic, kafka.bootstrap.servers, … (page Options of the documentation); may be repeated. {OTHERS_CAN_READ} "
    add_pairs(
        sink, "--sink-option", text=f"{text}to a file (--producer-config), or a placeholder such as ${{file:PATH:KEY}}"
    )
    sink.add_argument(
        "--producer-config", type=Path, metavar="FILE",
        help="a file of Kafka's producer options, without the prefix kafka., such as conf/producer.properties of the "
        "repository; --sink-option overrides it",
    )  # fmt: skip
    return job


def load(reader: DataFrameReader | DataStreamReader, arguments: argparse.Namespace) -> DataFrame:
    """The source's rows with the columns of the records."""
    reader = reader.format(arguments.source_format).options(**dict(arguments.source_option))
    if arguments.schema:
        reader = reader.schema(arguments.schema)
    columns = dict(arguments.column)
    columns |= {name: sql for name in ("key", "value") if (sql := getattr(arguments, name)) is not None}
    frame = reader.load(arguments.path)
    return frame.selectExpr(*(f"{sql} AS `{name}`" for name, sql in columns.items())) if columns else frame


def sink_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of the file with the prefix ``kafka.``, overridden by those of the command line."""
    producer = read_properties(arguments.producer_config) if arguments.producer_config else {}
    return {KAFKA_PREFIX + name: value for name, value in producer.items()} | dict(arguments.sink_option)


class SparkJobError(KafkaError):
    """Spark did not start, or a job failed; the message is the reason."""


@contextmanager
def spark_session(name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with ``settings``, on top of those of ``spark-submit``; stopped at the end of the block."""
    # Spark starts its Python workers with PYSPARK_PYTHON.
    os.environ.setdefault("PYSPARK_PYTHON", settings.get("spark.pyspark.python", sys.executable))
    try:
        spark = SparkSession.builder.config(map=dict(settings)).appName(name).getOrCreate()
    except (Py4JError, PySparkException) as error:  # such as a wrong master, or no Java
        raise SparkJobError(reason(error)) from None
    try:
        yield spark
    except (Py4JError, PySparkException) as error:  # its text comes from the JVM, which must still run
        raise SparkJobError(reason(error)) from None
    finally:
        spark.stop()


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """The session that ``spark-submit`` configured, with the sink; stopped at the end of the block."""
    with spark_session(name, {}) as spark:
        # A format that Spark discovers ignores spark.pyspark.python and --py-files, even in executors. A registered
        # format runs like all other Python code.
        register_format(spark)
        yield spark


def exit_code(main: Callable[[], None]) -> int:
    """Runs ``main``. Returns 0, or 1 after one line with the error."""
    try:
        with plain_config_warnings():
            main()
    except (KafkaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
