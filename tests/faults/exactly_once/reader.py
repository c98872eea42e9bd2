"""What an independent read_committed reader finds in a topic, and that no open transaction hides anything from it."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.waiting import until

_DEADLINE_S = 60.0
# Well below transaction.timeout.ms, or the broker would end what was left open before anybody sees it.
_NEXT_S = 15.0
_COMMITTED, _UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


def read_committed(servers: str, topic: str) -> dict[int, list[bytes]]:
    """The values of each partition in their order, up to its very end: fails when an open transaction hides it."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        places = _partitions(consumer, topic)
        ends = offsets_at_end(servers, places, _UNCOMMITTED)
        consumer.assign(places)
        values: dict[int, list[bytes]] = {partition: [] for partition in ends}
        left = set(ends)
        while left:
            hidden = f"{topic} {left} do not come to their end: a transaction is open"
            message = until(lambda: consumer.poll(1), lambda message: message is not None, hidden, _NEXT_S)
            if message.error() is None:
                values[message.partition()].append(message.value())
            elif message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
        return values
    finally:
        consumer.close()


def is_open(servers: str, topic: str) -> bool:
    """Whether a transaction is open in partition 0."""
    place = [TopicPartition(topic, 0)]
    stable, end = (offsets_at_end(servers, place, isolation)[0] for isolation in (_COMMITTED, _UNCOMMITTED))
    return stable < end


def _partitions(consumer: Consumer, topic: str) -> list[TopicPartition]:
    partitions = consumer.list_topics(topic, timeout=_DEADLINE_S).topics[topic].partitions
    return [TopicPartition(topic, partition, 0) for partition in partitions]


def offsets_at_end(servers: str, places: Sequence[TopicPartition], isolation: IsolationLevel) -> dict[int, int]:
    """Uncommitted: high watermarks. Committed: last stable offsets, which is all that an open transaction leaves."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = {TopicPartition(place.topic, place.partition): OffsetSpec.latest() for place in places}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=_DEADLINE_S)
    return {place.partition: answer.result(_DEADLINE_S).offset for place, answer in answers.items()}
