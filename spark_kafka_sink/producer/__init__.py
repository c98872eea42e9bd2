"""The producer: rows and records in, receipts and futures out."""

from spark_kafka_sink.producer.append.receipt import Delivery, SendReceipt
from spark_kafka_sink.producer.producer import KafkaProducer

__all__ = ["Delivery", "KafkaProducer", "SendReceipt"]
