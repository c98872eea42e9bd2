"""Writes a struct column as Avro with a schema registry, and reads it with Confluent's deserializer.

Run it with ``python examples/schema_registry.py``; it starts a test broker and a real registry, Apicurio, which the
first start downloads, and needs ``pip install "spark-kafka-sink[spark]" "confluent-kafka[avro,schemaregistry]"``.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import DeserializingConsumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from pyspark.sql import SparkSession

from spark_kafka_sink.testing import LocalSchemaRegistry, TestBroker


def read(servers: str, registry_url: str, count: int) -> list[Any]:
    """The first values of the topic, decoded with the schema that their ids name."""
    consumer = DeserializingConsumer({
        "bootstrap.servers": servers,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
        "value.deserializer": AvroDeserializer(SchemaRegistryClient({"url": registry_url})),
    })  # fmt: skip
    consumer.subscribe(["orders"])
    try:
        records = [consumer.poll(30) for _ in range(count)]
        return [record and record.value() for record in records]
    finally:
        consumer.close()


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    orders = spark.sql("SELECT id, concat('c', id % 2) AS customer, id * 1.5D AS amount FROM range(4)")
    with TestBroker() as broker, LocalSchemaRegistry() as registry:
        (
            orders.selectExpr("customer AS key", "struct(*) AS value")
            .coalesce(1)
            .write.format("pykafka")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("topic", "orders")
            .option("valueFormat", "avro")
            .option("schema.registry.url", registry.url)  # registers the column's schema as orders-value
            .mode("append")
            .save()
        )
        for order in read(broker.bootstrap_servers, registry.url, orders.count()):
            print(order)
        spark.stop()


if __name__ == "__main__":
    main()
