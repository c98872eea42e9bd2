"""A batch job in a process of its own: ``python batch_job.py SERVERS TOPIC OPTIONS``.

Writes the numbers below ``rows`` in eight tasks, two at a time. A task may fail seven times. OPTIONS: JSON, the sink's,
and ``rows``, ``columns`` (SQL), ``master`` (default: this machine), ``write_kafka`` (true: the function, not the
format), ``shuffled_into`` (a folder for Spark's event log: the rows of the tasks come out of a shuffle).
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from spark_kafka_sink.spark import write_kafka

TASKS = 8


def main(servers: str, topic: str, more: str) -> None:
    given = json.loads(more)
    builder = SparkSession.builder.master(given.pop("master", "local[2,8]")).appName("faults")
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.executor.memory": "512m"}
    event_log = given.pop("shuffled_into", None)
    if event_log is not None:
        settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
        settings["spark.eventLog.dir"] = event_log
        # A dead executor's files are on this machine, too, but rows must be lost with it.
        settings |= {"spark.shuffle.readHostLocalDisk": "false", "spark.shuffle.io.retryWait": "1s"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.range(0, given.pop("rows"), 1, TASKS).selectExpr(*given.pop("columns"))
    if event_log is not None:
        frame = frame.repartition(TASKS, frame.columns[0])
    by_function = given.pop("write_kafka", False)
    options = {"kafka.bootstrap.servers": servers, "topic": topic, **given}
    if by_function:
        write_kafka(frame, options)
    else:
        frame.write.format("pykafka").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
