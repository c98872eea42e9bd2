"""A streaming table of clean orders, and two sinks that are fed from it."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
# Of spark-pipeline.yml.
landing = str(spark.conf.get("orders.landing"))
servers = str(spark.conf.get("orders.bootstrap.servers"))

for topic in ("large-orders", "small-orders"):
    dp.create_sink(
        topic.replace("-", "_"),
        "pykafka",
        {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly-once"},
    )


@dp.table
def clean_orders() -> DataFrame:
    """Orders of new files, without those that have no amount."""
    return spark.readStream.schema("id STRING, amount DOUBLE").json(landing).where("amount IS NOT NULL")


def as_records(condition: str) -> DataFrame:
    """The clean orders that meet the condition, with the columns of a record."""
    orders = spark.readStream.table("clean_orders").where(condition)
    return orders.selectExpr("id AS key", "to_json(struct(*)) AS value")


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    return as_records("amount >= 100")


@dp.append_flow(target="small_orders")
def small() -> DataFrame:
    return as_records("amount < 100")
