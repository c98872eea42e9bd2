"""A batch job in a process of its own: ``python batch_job.py SERVERS TOPIC OPTIONS``.

Writes the numbers below ``rows`` in eight tasks, two at a time. A task may fail seven times. OPTIONS: JSON, the sink's,
and ``rows``, ``columns`` (SQL).
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

TASKS = 8


def main(servers: str, topic: str, more: str) -> None:
    builder = SparkSession.builder.master("local[2,8]").appName("faults")
    for name, value in {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    given = json.loads(more)
    frame = spark.range(0, given.pop("rows"), 1, TASKS).selectExpr(*given.pop("columns"))
    options = {"kafka.bootstrap.servers": servers, "topic": topic, **given}
    frame.write.format("pykafka").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
