"""Writes a frame exactly once, reads the topic back with librdkafka, and compares: no row may be missing or doubled.

Run it with ``python examples/read_back.py``; it starts a real Kafka, and needs
``pip install "spark-kafka-sink[spark]" confluent-kafka``.
"""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from spark_kafka_sink.testing import LocalKafka


def committed_records(servers: str, topic: str) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of every committed record, up to the end of each partition."""
    consumer = Consumer({
        "bootstrap.servers": servers,
        "group.id": "read-back",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",  # otherwise rows of open and aborted transactions are read, too
        "enable.partition.eof": True,
    })  # fmt: skip
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        unfinished = set(partitions)
        while unfinished:
            record = consumer.poll(30)
            if record is None:
                raise TimeoutError(f"Partitions {unfinished} of {topic} do not come to their end.")
            if (error := record.error()) is None:
                yield record.key(), record.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(record.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def main() -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    records = spark.range(1000).selectExpr("cast(id % 7 AS STRING) AS key", "to_json(struct(id)) AS value")
    orders = records.selectExpr("cast(key AS BINARY) AS key", "cast(value AS BINARY) AS value")  # as a reader gets them
    with LocalKafka() as kafka:
        kafka.create_topic("orders", partitions=4)
        (
            orders.write.format("pykafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("topic", "orders")
            .option("deliveryGuarantee", "exactly-once")
            .option("txnAppId", "orders")
            .option("txnVersion", 1)
            .mode("append")
            .save()
        )
        read = spark.createDataFrame(committed_records(kafka.bootstrap_servers, "orders"), orders.schema)
        missing, unexpected = orders.exceptAll(read).count(), read.exceptAll(orders).count()
        print(f"{read.count()} records read: {missing} rows missing, {unexpected} doubled or unknown")
        spark.stop()


if __name__ == "__main__":
    main()
