"""A topic read back by an independent consumer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

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
        settings = {"bootstrap.servers": self.servers, "group.id": "reader", "enable.auto.commit": False}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        try:
            return self._read(consumer)
        finally:
            consumer.close()

    def values(self) -> Counter[bytes | None]:
        """How often each value is there."""
        return Counter(record.value for record in self.records())

    def _read(self, consumer: Consumer) -> list[Record]:
        partitions = consumer.list_topics(self.name, timeout=_DEADLINE_S).topics[self.name].partitions
        places = [TopicPartition(self.name, partition, 0) for partition in partitions]
        ends = {p.partition: consumer.get_watermark_offsets(p, timeout=_DEADLINE_S)[1] for p in places}
        missing = sum(ends.values())
        consumer.assign(places)
        records = []
        while missing:
            messages = consumer.consume(min(missing, 10_000), timeout=_DEADLINE_S)
            assert messages, f"{missing} records of {self.name} did not come within {_DEADLINE_S} s"
            for message in messages:
                assert message.error() is None, message.error()
            records += [_record(message) for message in messages]
            missing -= len(messages)
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
