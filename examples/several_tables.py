"""Writes several tables to a topic each, at the same time: every table is a Spark job in a thread of its own.

Run it with ``python examples/several_tables.py``; it starts a test broker, and needs
``pip install "spark-kafka-sink[spark]"``.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.spark import WriteResult, write_kafka
from spark_kafka_sink.testing import TestBroker


def write_table(name: str, rows: DataFrame, servers: str) -> WriteResult:
    """The table's rows as JSON in the topic of its name. Works in any thread, and returns rows and offsets."""
    options = {"kafka.bootstrap.servers": servers, "topic": name}
    return write_kafka(rows.selectExpr("cast(id AS STRING) AS key", "to_json(struct(*)) AS value"), options)


def main() -> int:
    # FAIR: a small table does not wait until all tasks of a large one have started.
    spark = SparkSession.builder.master("local[2]").config("spark.scheduler.mode", "FAIR").getOrCreate()
    tables = {
        "customers": spark.range(1000).selectExpr("id", "concat('c', id) AS name"),
        "orders": spark.range(5000).selectExpr("id", "id % 1000 AS customer"),
        "countries": spark.sql("SELECT 1 AS id, 'Chile' AS name UNION ALL SELECT 2, 'Malta'"),
    }
    failed = 0
    with TestBroker() as broker, ThreadPoolExecutor(max_workers=3) as threads:
        servers = broker.bootstrap_servers
        writes = {name: threads.submit(write_table, name, rows, servers) for name, rows in tables.items()}
        for name, write in writes.items():
            if error := write.exception():  # waits; one table that fails does not hide what became of the others
                print(f"{name}: {error}", file=sys.stderr)
                failed += 1
            else:
                print(f"{name}: {write.result().rows} rows")
        spark.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
