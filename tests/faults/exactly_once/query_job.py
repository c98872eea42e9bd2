"""A streaming query in a process of its own: ``python query_job.py SERVERS TOPIC CHECKPOINT STOP OPTIONS``.

Micro-batch N holds the numbers from N * ROWS on, in as many tasks as the topic has partitions, each to its own
partition. When there is a file STOP, it is stopped and started once more for one micro-batch: that one leaves nothing
open. OPTIONS: JSON, more of the sink's; with a valueFormat the numbers are structs of one. ``columns`` in it: SQL,
instead of these columns.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 40
TASKS = 4
LEDGER = "__pykafka_ledger"


def main(servers: str, topic: str, checkpoint: str, stop: str, more: str) -> None:
    builder = SparkSession.builder.master("local[2,2]").appName("query")
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.streaming.pollingDelay": "5ms"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", TASKS)
    given = json.loads(more)
    value = "struct(value) value" if "valueFormat" in given else "cast(value as string) value"
    columns = given.pop("columns", [value, "spark_partition_id() partition"])
    rows = source.load().selectExpr(*columns)
    writer = rows.writeStream.format("pykafka").option("checkpointLocation", checkpoint)
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": topic,
        **given,
    }
    writer = writer.options(**options)
    query = writer.start()
    while not (query.awaitTermination(0.2) or Path(stop).exists()):
        pass
    query.stop()
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
