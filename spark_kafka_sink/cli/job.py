"""What the jobs for ``spark-submit`` share: their command line, any Spark source, one plain error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.cli.properties import read_properties
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.options import KAFKA_PREFIX
from spark_kafka_sink.spark.source import KafkaDataSource
from spark_kafka_sink.spark.spark_error import reason


class Reader(Protocol):
    """What ``spark.read`` and ``spark.readStream`` have in common."""

    def format(self, source: str) -> Self: ...
    def options(self, **options: str) -> Self: ...
    def schema(self, schema: str) -> Self: ...
    def load(self, path: str | None = None) -> DataFrame: ...


def parser(description: str, examples: str) -> argparse.ArgumentParser:
    """The options both jobs take."""
    job = argparse.ArgumentParser(
        description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = job.add_argument_group("where the rows come from")
    source.add_argument(
        "--source-format", required=True, metavar="NAME", help="any source Spark has: parquet, csv, jdbc, kafka, …"
    )
    source.add_argument("--path", help="file or folder to read")
    source.add_argument("--schema", metavar="DDL", help='columns of the source, as in "id INT, name STRING"')
    _add_pairs(source, "--source-option", "an option of the source; may be given several times")

    record = job.add_argument_group("what becomes a record (without any of these: the columns as they are)")
    record.add_argument("--key", metavar="SQL", help="the record's key, a string or binary")
    record.add_argument("--value", metavar="SQL", help='its value, a string or binary, such as "to_json(struct(*))"')
    _add_pairs(record, "--column", "topic, partition, headers, timestamp: topic=\"'t-' || region\"", "SQL")

    sink = job.add_argument_group("where they go")
    _add_pairs(sink, "--sink-option", "topic, kafka.bootstrap.servers, …: docs/options.md; may be given several times")
    sink.add_argument(
        "--producer-config", type=Path, metavar="FILE",
        help="a file of Kafka's producer options, without the prefix kafka. (conf/producer.properties); "
        "--sink-option wins",
    )  # fmt: skip
    return job


def load(reader: Reader, arguments: argparse.Namespace) -> DataFrame:
    """The source's rows, with the columns the sink looks at."""
    reader = reader.format(arguments.source_format).options(**dict(arguments.source_option))
    if arguments.schema:
        reader = reader.schema(arguments.schema)
    columns = dict(arguments.column)
    columns |= {name: sql for name in ("key", "value") if (sql := getattr(arguments, name)) is not None}
    frame = reader.load(arguments.path)
    return frame.selectExpr(*(f"{sql} AS `{name}`" for name, sql in columns.items())) if columns else frame


def sink_options(arguments: argparse.Namespace) -> dict[str, str]:
    """The file's options under ``kafka.``, and over them those of the command line."""
    producer = read_properties(arguments.producer_config) if arguments.producer_config else {}
    return {KAFKA_PREFIX + name: value for name, value in producer.items()} | dict(arguments.sink_option)


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """The session ``spark-submit`` has configured; it ends with the block."""
    # Spark starts its Python workers with PYSPARK_PYTHON, which nobody may have set.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName(name).getOrCreate()
    # A format that Spark finds by itself runs on the Python of the JVM's environment, also in executors, whatever
    # spark.pyspark.python says; and not out of --py-files. A registered one runs where all other Python code does.
    spark.dataSource.register(KafkaDataSource)
    try:
        yield spark
    except (Py4JError, PySparkException) as error:  # its text has to be asked for while the JVM lives
        raise JobError(reason(error)) from None
    finally:
        spark.stop()


class JobError(KafkaError):
    """The job failed; the message is the reason."""


def exit_code(main: Callable[[], None]) -> int:
    """0, or 1 after one line that says what went wrong."""
    try:
        main()
    except (KafkaError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _add_pairs(group: argparse._ArgumentGroup, flag: str, text: str, value: str = "VALUE") -> None:
    group.add_argument(flag, type=_pair, action="append", default=[], metavar=f"NAME={value}", help=text)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value
