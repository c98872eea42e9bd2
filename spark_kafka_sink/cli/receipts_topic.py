"""A receiptsTopic as a read_committed consumer sees it (librdkafka's, confluent-kafka)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from spark_kafka_sink.errors import KafkaError

if TYPE_CHECKING:
    from confluent_kafka import Message

_DEADLINE_S = 30.0


def committed_values(servers: str, topic: str) -> Iterator[str]:
    """Up to the end of every partition, or to its first open transaction, which is told on stderr."""
    settings = {"bootstrap.servers": servers, "group.id": "receipts", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        left = _assign(consumer, topic)
        while left:
            message = consumer.poll(_DEADLINE_S)
            if message is None:
                raise KafkaError(f"{topic} did not answer within {_DEADLINE_S:.0f} s")
            error = message.error()
            if error is None:
                yield (message.value() or b"").decode(errors="replace")
            elif error.code() == ClientError._PARTITION_EOF:
                left.discard(message.partition())
                _tell_what_is_hidden(consumer, message)
            else:
                raise KafkaError(f"{topic} cannot be read: {error.str()}")
    except KafkaException as error:
        raise KafkaError(f"{topic} cannot be read: {error}") from error
    finally:
        consumer.close()


def _assign(consumer: Consumer, topic: str) -> set[int | None]:
    """All partitions from their beginning; gives their numbers."""
    found = consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic]
    if found.error is not None:
        raise KafkaError(f"--topic {topic}: {found.error.str()}")
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found.partitions])
    return set(found.partitions)


def _tell_what_is_hidden(consumer: Consumer, end: Message) -> None:
    place = TopicPartition(end.topic() or "", end.partition() or 0)
    _, high_watermark = consumer.get_watermark_offsets(place, cached=True)
    offset = end.offset()
    if offset is not None and offset < high_watermark:
        told = f"{place.topic}-{place.partition}: an open transaction hides what is there from offset {offset} on"
        print(told, file=sys.stderr)
