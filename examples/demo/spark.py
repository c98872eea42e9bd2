"""The demo's Spark: a local session, a batch job, a streaming query."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from examples.demo import flights as demo_flights
from spark_kafka_sink.spark.caller_job import reason
from spark_kafka_sink.testing.child_processes import WithLogError, tail
from spark_kafka_sink.testing.java import java_environment

STREAM_DEADLINE_S = 120
MONTHS_PER_MICRO_BATCH = 2
_JVM_DEADLINE_S = 10.0

# Settings of other Spark installations that the demo must not inherit.
_FOREIGN = ("SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR")


class SparkFailedError(WithLogError):
    """A Spark job failed; the message has the reason and the end of Spark's log."""


@contextmanager
def local_spark(folder: Path) -> Iterator[SparkSession]:
    """A session with its files in ``folder`` and its log in ``folder/spark.log``; its JVM ends with the block."""
    _set_environment()
    conf = SparkConf(loadDefaults=False).setMaster("local[*]").setAppName("spark-kafka-sink demo")
    conf.setAll([
        ("spark.ui.enabled", "false"),
        ("spark.local.dir", str(folder)),
        ("spark.sql.warehouse.dir", str(folder / "warehouse")),
        ("spark.sql.session.timeZone", "UTC"),
    ])  # fmt: skip
    log = folder / "spark.log"
    with ExitStack() as stack:
        with log.open("ab") as output:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        stack.callback(_end, gateway.proc)
        stack.callback(gateway.shutdown)
        context = SparkContext(gateway=gateway, conf=conf)
        stack.callback(context.stop)
        try:
            yield SparkSession(context)
        except (Py4JError, PySparkException) as error:  # its text comes from the JVM, which must still run
            raise SparkFailedError(f"{reason(error)}\nSpark's log ends with:\n{tail(log, 15)}") from None


def write_batch(spark: SparkSession, flights: Path, options: Mapping[str, str], topic: str) -> None:
    """One batch job; returns when every row is acknowledged. ``options``: of the sink, without the topic."""
    frame = spark.read.schema(demo_flights.SCHEMA).options(header=True, nullValue=demo_flights.NULL).csv(str(flights))
    (records(frame).write.format("pykafka").options(**options).option("topic", topic).mode("append").save())


def write_stream(
    spark: SparkSession, flights: Path, options: Mapping[str, str], topic: str, checkpoint: Path
) -> list[int]:
    """One streaming query over all files; returns the number of rows of each micro-batch."""
    source = spark.readStream.schema(demo_flights.SCHEMA).options(header=True, nullValue=demo_flights.NULL)
    query = (
        records(source.option("maxFilesPerTrigger", MONTHS_PER_MICRO_BATCH).csv(str(flights)))
        .writeStream.format("pykafka")
        .options(**options)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(STREAM_DEADLINE_S):
        query.stop()
        raise SparkFailedError(f"The streaming query did not end within {STREAM_DEADLINE_S} s.")
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def records(flights: DataFrame) -> DataFrame:
    """Each flight as a JSON value, keyed by its tail number."""
    return flights.selectExpr(f"{demo_flights.KEY} AS key", "to_json(struct(*)) AS value")


def _set_environment() -> None:
    for name in _FOREIGN:
        os.environ.pop(name, None)
    os.environ.update(java_environment())
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Without PYSPARK_PYTHON, Spark's workers would not use this virtual environment.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """Closes the standard input of a driver's JVM, which ends it, and waits."""
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(_JVM_DEADLINE_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait(_JVM_DEADLINE_S)
