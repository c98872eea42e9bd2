"""Reads and checks the demo's topics with another client, librdkafka (confluent-kafka)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from examples.demo.librdkafka import DEADLINE_S, QUIET, read_topic
from spark_kafka_sink import errors

if TYPE_CHECKING:
    from examples.demo.flights import KeyAndValue

_MISPLACED = "on another partition than librdkafka's murmur2 chooses"


class CheckError(errors.KafkaError):
    """The topics could not be created, read or deleted."""


@dataclass
class PartitionCount:
    """The records read from one partition; bytes of keys and values."""

    records: int = 0
    without_key: int = 0
    first_offset: int = -1
    last_offset: int = -1
    bytes: int = 0


@dataclass
class TopicCheck:
    """Counts ``missing`` rows, records that are there ``twice``, ``foreign`` ones and ``misplaced`` keyed ones.

    ``samples``: the first record of each partition, and the first one without a key.
    """

    topic: str
    partitions: dict[int, PartitionCount]
    samples: list[Message] = field(default_factory=list)
    missing: int = 0
    twice: int = 0
    foreign: int = 0
    misplaced: int = 0

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions.values())

    @property
    def without_key(self) -> int:
        return sum(partition.without_key for partition in self.partitions.values())

    def faults(self) -> list[str]:
        """A sentence per kind of fault."""
        seen = (
            (self.missing, "row is missing", "rows are missing"),
            (self.twice, "record is a duplicate", "records are duplicates"),
            (self.foreign, "record matches no row", "records match no row"),
            (self.misplaced, f"keyed record is {_MISPLACED}", f"keyed records are {_MISPLACED}"),
        )
        return [f"{self.topic}: {count:,} {one if count == 1 else many}." for count, one, many in seen if count]


class Topics:
    """The demo's topics. ``client``: librdkafka's options of servers and security."""

    def __init__(self, client: Mapping[str, str], partitions: int) -> None:
        self._client = client
        self._partitions = partitions
        self._admin = AdminClient({**client, **QUIET})

    @contextmanager
    def created(self, *names: str, keep: bool) -> Iterator[None]:
        """Creates topics, which must not exist, and deletes them after the block unless ``keep``."""
        try:
            self._admin.list_topics(timeout=DEADLINE_S / 3)
        except KafkaException as error:
            raise CheckError(
                f"No Kafka responds at {self._client['bootstrap.servers']}: {error.args[0].str()}"
            ) from None
        with ExitStack() as stack:
            for name in names:
                new = NewTopic(name, self._partitions, replication_factor=-1)
                created = self._admin.create_topics([new], operation_timeout=DEADLINE_S)
                _done(created[name].result, f"Topic {name} could not be created")
                if not keep:
                    stack.callback(self._delete, name)
            yield

    def acknowledged(self, topic: str) -> int:
        """Number of records in the topic, by its end offsets."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        places = {TopicPartition(topic, partition): latest for partition in range(self._partitions)}
        answers = self._admin.list_offsets(places, request_timeout=DEADLINE_S).values()
        return sum(answer.result().offset for answer in answers)

    def partitions_of(self, topic: str, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The partition of each key under librdkafka's ``murmur2_random`` (Java's default).

        Writes a record per key to ``topic``, which must have as many partitions as the topics to check.
        """
        chosen: dict[bytes, int] = {}

        def delivered(error: KafkaError | None, message: Message) -> None:
            key, partition = message.key(), message.partition()
            if error is None and key is not None and partition is not None:
                chosen[key] = partition

        producer = Producer({**self._client, "partitioner": "murmur2_random", **QUIET})
        expected = set(keys)
        for key in expected:
            producer.produce(topic, key=key, on_delivery=delivered)
        producer.flush(DEADLINE_S)
        if chosen.keys() != expected:
            raise CheckError(f"librdkafka could write only {len(chosen)} of {len(expected)} keys to {topic}.")
        return chosen

    def check(
        self, topic: str, expected: Counter[KeyAndValue], places: dict[bytes, int], advance: Callable[[int], None]
    ) -> TopicCheck:
        """Reads the whole topic and compares every record; calls ``advance`` with the number of records read."""
        partitions = {partition: PartitionCount() for partition in range(self._partitions)}
        check = TopicCheck(topic, partitions)
        awaited = expected.copy()
        for messages in read_topic(self._client, topic, self._partitions):
            for message in messages:
                _count(message, check, awaited, places)
            advance(len(messages))
        check.missing = sum(count for count in awaited.values() if count > 0)
        check.twice = -sum(count for row, count in awaited.items() if count < 0 and row in expected)
        check.foreign = -sum(count for row, count in awaited.items() if count < 0 and row not in expected)
        return check

    def _delete(self, name: str) -> None:
        deleted = self._admin.delete_topics([name], operation_timeout=DEADLINE_S)
        _done(deleted[name].result, f"Topic {name} could not be removed")


def _count(message: Message, check: TopicCheck, awaited: Counter[KeyAndValue], places: dict[bytes, int]) -> None:
    number, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
    assert number is not None  # only unsent messages have none
    assert offset is not None
    partition = check.partitions[number]
    if not partition.records:
        partition.first_offset = offset
        check.samples.append(message)
    if key is None:
        if not check.without_key:
            check.samples.append(message)
        partition.without_key += 1
    elif places.get(key) != number:
        check.misplaced += 1
    partition.last_offset = offset
    partition.records += 1
    partition.bytes += len(key or b"") + len(value or b"")
    awaited[key, value] -= 1


def _done(result: Callable[[], object], trouble: str) -> None:
    try:
        result()
    except KafkaException as error:
        raise CheckError(f"{trouble}: {error.args[0].str()}") from None
