"""Orders of the web shop and of the branches, into one topic."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

# Without transactionalIdPrefix: each flow is a query of its own, and needs a prefix of its own.
dp.create_sink(
    "orders",
    "pykafka",
    {"kafka.bootstrap.servers": "localhost:9092", "topic": "orders", "deliveryGuarantee": "exactly-once"},
)


def read_orders(folder: str) -> DataFrame:
    """New files of a folder, as records. A relative folder is in the directory where the run was started."""
    orders = SparkSession.active().readStream.schema("id STRING, amount DOUBLE").json(folder)
    return orders.selectExpr("id AS key", "to_json(struct(*)) AS value")


@dp.append_flow(target="orders")
def web() -> DataFrame:
    return read_orders("landing/web")


@dp.append_flow(target="orders")
def branches() -> DataFrame:
    return read_orders("landing/branches")
