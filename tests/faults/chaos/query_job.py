"""A streaming query in a process of its own: ``python query_job.py MASTER SERVERS TOPIC FOLDER``.

Micro-batch N holds the numbers from N * ROWS on, in as many tasks as the topic has partitions, each to its own
partition. A query that has failed is started again in the same session. When FOLDER has a file ``stop``, the query is
stopped and started once more for one micro-batch: that one leaves nothing open.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from tests.faults.support.kill_points import VARIABLE

ROWS = 200
TASKS = 4
FAILED = "QUERY FAILED: "
_NO_SOURCE = "DATA_SOURCE_NOT_FOUND"
_PADDING = 500
_PAUSE_S = 0.5
_FOR_EXECUTORS = ("CHAOS", "CHAOS_START", VARIABLE, "PYTHONPATH")

OPTIONS = {
    "deliveryGuarantee": "exactly-once",
    "kafka.request.timeout.ms": 6_000,
    "kafka.delivery.timeout.ms": 30_000,
    "kafka.max.block.ms": 30_000,
}


def session(master: str) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("chaos")
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.sql.streaming.pollingDelay": "5ms",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "2",
        "spark.cores.max": "4",
        "spark.task.maxFailures": "2",
        "spark.network.timeout": "30s",
        "spark.network.timeoutInterval": "10s",
        "spark.executor.heartbeatInterval": "3s",
        **{f"spark.executorEnv.{name}": os.environ[name] for name in _FOR_EXECUTORS},
        "spark.executorEnv.CHAOS_SIDE": "executor",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def writer(spark: SparkSession, servers: str, topic: str, folder: str) -> DataStreamWriter:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", TASKS)
    value = f"concat(cast(value as string), repeat(' ', {_PADDING})) value"
    rows = source.load().selectExpr(value, "spark_partition_id() partition")
    into = rows.writeStream.format("pykafka").option("checkpointLocation", f"{folder}/checkpoint").options(**OPTIONS)
    names = {"kafka.bootstrap.servers": servers, "topic": topic, "transactionalIdPrefix": topic}
    return into.options(**names)


def run(into: DataStreamWriter, stop: Path) -> None:
    """Until it is told to stop, and then one micro-batch more. Raises what the query failed with."""
    query = into.start()
    while not (query.awaitTermination(0.2) or stop.exists()):
        pass
    query.stop()
    into.trigger(availableNow=True).start().awaitTermination()


def run_until_done(spark: SparkSession, work: Callable[[], None]) -> None:
    """Again after each failure, which is printed. A session that is stopped ends the process, and so does one whose
    look-up of Python data sources has failed, because Spark never repeats it."""
    while True:
        try:
            work()
            break
        except Exception as error:
            sys.stdout.write(f"{FAILED}{type(error).__name__}: {' '.join(str(error).split())}\n")
            sys.stdout.flush()
            if spark.sparkContext._jsc.sc().isStopped() or _NO_SOURCE in str(error):
                raise SystemExit(1) from None
            time.sleep(_PAUSE_S)
    spark.stop()


def main(master: str, servers: str, topic: str, folder: str) -> None:
    spark = session(master)
    run_until_done(spark, lambda: run(writer(spark, servers, topic, folder), Path(folder) / "stop"))


if __name__ == "__main__":
    main(*sys.argv[1:])
