"""The producer: rows and records in, receipts and futures out."""

from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.receipt import Delivery, SendReceipt

__all__ = ["Delivery", "KafkaProducer", "SendReceipt"]
