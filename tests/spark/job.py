"""A job in a process of its own: ``python job.py MASTER SERVERS TOPIC ROWS [NAME=VALUE …]``.

Writes ROWS rows in four tasks. What follows ROWS is Spark's configuration.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(master: str, servers: str, topic: str, rows: str, *settings: str) -> None:
    builder = SparkSession.builder.master(master)
    for name, _, value in (setting.partition("=") for setting in settings):
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.range(0, int(rows), 1, 4).selectExpr("cast(id as string) value")
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    frame.write.format("pykafka").options(**options).mode("append").save()
    spark.stop()


main(*sys.argv[1:])
