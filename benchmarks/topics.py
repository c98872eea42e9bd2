"""New topics for every run, their rows counted by offsets, and gone afterwards.

The first appends to a partition cost a broker milliseconds (the leader's epoch goes to the disk, the indexes get their
first pages), in a topic of 1,000 partitions more than a whole run. That is no sink's doing: a few KiB have been written
to every partition before a run begins.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

if TYPE_CHECKING:
    from spark_kafka_sink.testing.local_kafka import LocalKafka

TIMEOUT_S = 30.0
READ_DEADLINE_S = 120.0
ADMIN_S = 120.0
FIRST_BATCHES = 3
MOST_AT_ONCE = 1_000
"""Partitions that one request creates: a controller writes at most 10,000 records at once, and a log takes its time."""

BROKER_PROPERTIES = {
    # Else the log of a deleted topic stays on the disk for a minute.
    "log.segment.delete.delay.ms": "0",
    # A tenth of the default, enough for a segment of 16 KiB batches: the first page of an index of 10 MiB costs ext4
    # 4 ms, one of 1 MiB 0.5 ms.
    "log.index.size.max.bytes": "1048576",
}

_numbers = itertools.count(1)


class MissingRowsError(Exception):
    """The topics do not hold exactly the rows that were written."""


@contextlib.contextmanager
def new_topics(
    kafka: LocalKafka, count: int, partitions: int, configs: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """``prefix-0`` to ``prefix-<count - 1>``, deleted when the block ends."""
    prefix = f"bench-{next(_numbers)}"
    names = [f"{prefix}-{number}" for number in range(count)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    _create(admin, kafka, names, partitions, configs or {})
    _open_logs(
        kafka.bootstrap_servers, [TopicPartition(name, number) for name in names for number in range(partitions)]
    )
    try:
        yield names
    finally:
        _await_all(admin.delete_topics(names, request_timeout=ADMIN_S))


def _create(
    admin: AdminClient, kafka: LocalKafka, names: Sequence[str], partitions: int, configs: Mapping[str, str]
) -> None:
    at_first = min(partitions, MOST_AT_ONCE)
    new = [NewTopic(name, at_first, 1, config=dict(configs)) for name in names]
    _await_all(admin.create_topics(new, request_timeout=ADMIN_S))
    for name in names:
        kafka.await_in_sync(name)
        for begun in range(at_first, partitions, MOST_AT_ONCE):
            more = NewPartitions(name, min(begun + MOST_AT_ONCE, partitions))
            _await_all(admin.create_partitions([more], request_timeout=ADMIN_S))
            kafka.await_in_sync(name)


def _await_all(done: Mapping[str, Future[None]]) -> None:
    for each in done.values():
        each.result(ADMIN_S)


def _open_logs(bootstrap_servers: str, places: Sequence[TopicPartition]) -> None:
    """Writes ``FIRST_BATCHES`` of one row to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for _ in range(FIRST_BATCHES):
        for place in places:
            producer.produce(place.topic, bytes(8 << 10), partition=place.partition)
        if producer.flush(ADMIN_S):
            raise MissingRowsError(f"the broker has not opened {len(places)} logs within {ADMIN_S:.0f} s")


def count_rows(bootstrap_servers: str, topics: Sequence[str]) -> int:
    """By the offsets of all partitions, without those that opened the logs: of topics written without transactions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    places = [TopicPartition(topic, partition) for topic in topics for partition in known[topic].partitions]

    specs: Any = OffsetSpec  # untyped
    ends = admin.list_offsets(dict.fromkeys(places, specs.latest()), request_timeout=TIMEOUT_S)
    total: int = sum(each.result(TIMEOUT_S).offset for each in ends.values())
    return total - FIRST_BATCHES * len(places)


def count_committed(bootstrap_servers: str, topics: Sequence[str]) -> int:
    """What a read_committed consumer reads to the end of all partitions, without what opened the logs; offsets also
    count control records.
    """
    consumer = Consumer({
        "bootstrap.servers": bootstrap_servers,
        "group.id": "benchmarks",
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",
    })  # fmt: skip
    deadline = time.monotonic() + READ_DEADLINE_S
    try:
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
        reading = {(topic, partition) for topic in topics for partition in known[topic].partitions}
        consumer.assign([TopicPartition(*place, FIRST_BATCHES) for place in reading])
        rows = 0
        while reading:
            for message in consumer.consume(10_000, timeout=1.0):
                if (error := message.error()) is None:
                    rows += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.discard((message.topic(), message.partition()))
                else:
                    raise MissingRowsError(error)
            if time.monotonic() > deadline:
                raise MissingRowsError(f"{len(reading)} partitions have no readable end after {READ_DEADLINE_S:.0f} s")
        return rows
    finally:
        consumer.close()


def check_rows(
    bootstrap_servers: str, topics: Sequence[str], written: int, more: int = 0, transactions: bool = False
) -> None:
    """Exactly ``written`` rows, or up to ``more`` more; ``transactions``: counted as they are committed."""
    counted = (count_committed if transactions else count_rows)(bootstrap_servers, topics)
    if not written <= counted <= written + more:
        raise MissingRowsError(f"{written} rows were written, {counted} are in {', '.join(topics)}")
