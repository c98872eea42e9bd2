"""A topic read back by an independent consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, TopicPartition

_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Record:
    """A record as librdkafka delivers it; ``headers`` None when it has none."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


@dataclass(frozen=True)
class Topic:
    servers: str
    name: str

    def records(self) -> list[Record]:
        """All committed records, by partition and offset."""
        with self._consumer() as consumer:
            return self._read(consumer)

    def count(self) -> int:
        """How many records there are, without reading them."""
        return sum(self.ends())

    def ends(self) -> list[int]:
        """The offset of each partition's end."""
        with self._consumer() as consumer:
            return [end for _, end in self._ends(consumer)]

    def values(self) -> Counter[bytes | None]:
        """How often each value is there."""
        return Counter(record.value for record in self.records())

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        settings = {"bootstrap.servers": self.servers, "group.id": "reader", "enable.auto.commit": False}
        settings["enable.partition.eof"] = True
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        try:
            yield consumer
        finally:
            consumer.close()

    def _ends(self, consumer: Consumer) -> list[tuple[TopicPartition, int]]:
        """The beginning of each partition, and the offset of its end."""
        partitions = consumer.list_topics(self.name, timeout=_DEADLINE_S).topics[self.name].partitions
        places = [TopicPartition(self.name, partition, 0) for partition in sorted(partitions)]
        return [(place, consumer.get_watermark_offsets(place, timeout=_DEADLINE_S)[1]) for place in places]

    def _read(self, consumer: Consumer) -> list[Record]:
        places = [place for place, _ in self._ends(consumer)]
        consumer.assign(places)
        left = {place.partition for place in places}
        records = []
        while left:  # to the ends: offsets also count the control records of transactions
            message = consumer.poll(_DEADLINE_S)
            assert message is not None, f"partitions {left} of {self.name} did not end within {_DEADLINE_S} s"
            if message.error() is None:
                records.append(_record(message))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
        return sorted(records, key=lambda record: (record.partition, record.offset))


def _record(message) -> Record:
    headers = message.headers()
    return Record(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        None if headers is None else tuple(headers),
    )
