"""The messages of one call of ``SyncProducer.send``, and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Never

from spark_kafka_sink.common.model import NO_TIMESTAMP, UNKNOWN_OFFSET
from spark_kafka_sink.producer.produce_api import PartitionResponse
from spark_kafka_sink.producer.record import RecordMetadata
from spark_kafka_sink.records.sizes import one_java_size_estimate


@dataclass(frozen=True, slots=True)
class KeyedMessage:
    """A message for ``SyncProducer.send`` whose partitioner gets ``partition_key`` instead of ``key`` (Kafka 0.8).

    ``key`` and ``value``: as in a ``ProducerRecord``. ``partition_key``: serialized like a key, but not stored; None:
    the key.
    """

    topic: str
    key: Any = None
    value: Any = None
    partition_key: Any = None

    def _refuse(self) -> Never:
        raise TypeError(
            "KafkaProducer.send takes a ProducerRecord, not a KeyedMessage, which is for SyncProducer: give the record "
            "a partition if its key must not choose it."
        )

    partition = headers = property(_refuse)  # the fields of a record that KafkaProducer reads


class SerializedMessage(NamedTuple):
    """A serialized record. ``row``: its position in the call. ``headers``: the encoded headers. ``partition_key``: the
    partitioner's key, None for an unkeyed record.
    """

    row: int
    topic: str
    key: bytes | None
    value: bytes | None
    partition_key: bytes | None
    partition: int | None
    timestamp: int
    headers: bytes

    @property
    def size(self) -> int:
        """Java's estimate in bytes."""
        return one_java_size_estimate(len(self.headers), (self.key, self.value))


Group = Sequence[SerializedMessage]
"""Messages of one partition, in their order."""


class Results:
    """The outcomes of the messages of one call, by row."""

    def __init__(self) -> None:
        self.delivered: dict[int, RecordMetadata] = {}
        self.errors: dict[int, Exception] = {}

    def deliver(self, group: Group, partition: int, response: PartitionResponse) -> None:
        base, appended = response.base_offset, response.log_append_time
        for position, message in enumerate(group):
            self.errors.pop(message.row, None)
            self.delivered[message.row] = RecordMetadata(
                message.topic,
                partition,
                UNKNOWN_OFFSET if base == UNKNOWN_OFFSET else base + position,
                message.timestamp if appended == NO_TIMESTAMP else appended,
                -1 if message.key is None else len(message.key),
                -1 if message.value is None else len(message.value),
            )

    def undelivered(self, messages: Group) -> Group:
        return [message for message in messages if message.row not in self.delivered]

    def fail(self, group: Group, error: Exception, retriable: bool) -> Group:
        """Returns the messages to send again."""
        self.errors.update((message.row, error) for message in group)
        return group if retriable else ()
