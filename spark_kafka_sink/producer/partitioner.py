"""``Partitioner``: gives every row of a slice its partition. ``CustomPartitioner`` runs a class of the user: over
columns (``Partitioner``), or per record (``RecordPartitioner``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from spark_kafka_sink.common.config.rules import instance
from spark_kafka_sink.common.model import ClusterSnapshot, TopicPartition
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrays import Int32Array, Int64Array
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns

NO_PARTITION = -1
"""The partition number of a row that names no partition."""

LEFT_OUT = -(1 << 31)
"""The partition number of a row that is not appended. A user's ``Partitioner`` sees such a row with partition 0 and
size 0."""

Partitions: TypeAlias = Int32Array | None
"""The partitions that rows name themselves, ``NO_PARTITION`` where they name none; None: no row names one."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The load of a topic's partitions at one moment (Java: ``BuiltInPartitioner.PartitionLoadStats``).

    ``available``: the partitions whose leader has taken data within ``partitioner.availability.timeout.ms``;
    ``waiting``: gives the number of waiting batches of each of some partitions; ``rooms``: the rooms in the last
    batches of ``topic``; None if partitioners are not told of new batches, as with ``SyncProducer``.
    """

    available: Sequence[int]
    cluster: ClusterSnapshot = field(default_factory=ClusterSnapshot)
    topic: str = ""
    waiting: Callable[[Sequence[int]], Sequence[int]] = lambda partitions: [0] * len(partitions)
    rooms: BatchRooms | None = None

    @property
    def queue_lengths(self) -> Sequence[int]:
        """Waiting batches per available partition, of which a topic may have 10,000. Not needed while a sticky run
        lasts."""
        return self.waiting(self.available)

    def in_rack(self, rack: str) -> PartitionLoad:
        """The load of the available partitions whose leader is in ``rack``; of all if there are none."""
        leaders = self.cluster.topics[self.topic].leaders
        near = {node.id for node in self.cluster.nodes.values() if node.rack == rack}
        chosen = tuple(partition for partition in self.available if leaders[partition] in near)
        return replace(self, available=chosen) if chosen else self


class Plugin(Protocol):
    """A class that a user writes. It may inherit the methods that it does not need."""

    def configure(self, config: Mapping[str, object]) -> None:
        """Called first, once: the producer's options by Kafka's names."""
        return

    def close(self) -> None:
        """Called once, when the producer is closed."""
        return


class Partitioner(Plugin, Protocol):
    """Chooses partitions for whole columns, where Java's ``clients.producer.Partitioner`` chooses for one record.

    Runs on the thread that appends; several threads may call it at once. A user's class may leave out ``configure`` and
    ``close``.
    """

    def partition(
        self, topic: str, columns: RecordColumns, named: Partitions, sizes: Int64Array, count: int, load: PartitionLoad
    ) -> Int32Array:
        """The partition of each row, from 0 to ``count - 1``.

        Rows keep the partitions that they name themselves (``named``, already checked). ``sizes``: bytes of each row
        as a record.

        For records of ``send``, it is called on the sender thread for many records together, so it must not block. If
        it raises, or chooses a partition that does not exist, the futures of all these records fail. ``send_columns``
        raises the error before any row is appended. Only a ``RecordPartitioner`` can fail a single record.
        """


def fresh_partitions(named: Partitions, rows: int) -> Int32Array:
    """An array for the result: the partitions that rows name, ``NO_PARTITION`` elsewhere."""
    return np.full(rows, NO_PARTITION, np.int32) if named is None else named.copy()


class BatchRooms:
    """The bytes that the last batch of each partition of a topic still accepts: the accumulator's figure, less the
    records since then. ``limit``: bytes of a new batch, header included. ``open_room``: gives the accumulator's figure;
    None if each call opens new batches.

    Kafka asks the accumulator per record (``RecordAppendResult.abortForNewBatch``). Here records join their batches
    later, many at once.
    """

    def __init__(self, topic: str, limit: int, open_room: Callable[[TopicPartition], int] | None = None) -> None:
        self._topic = topic
        self._open_room = open_room
        self._left: dict[int, int] = {}
        self.capacity = max(1, limit - HEADER_SIZE)
        """Bytes of a new batch."""

    def left(self, partition: int) -> int:
        if partition not in self._left:
            of = TopicPartition(self._topic, partition)
            self._left[partition] = 0 if self._open_room is None else self._open_room(of)
        return self._left[partition]

    def take(self, partition: int, size: int) -> None:
        """Counts a record of ``size`` bytes, which joins the last batch if it fits, else a new one."""
        left = self.left(partition)
        self._left[partition] = max(0, (left if size <= left else self.capacity) - size)


class RecordPartitioner(Plugin, ABC):
    """Base of partitioners that choose for one record at a time, as Java's ``clients.producer.Partitioner`` does.

    Called for every record that names no partition, by several threads at once if several send: microseconds a row,
    where a ``Partitioner`` over columns takes nanoseconds.
    """

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        key_bytes: bytes | None,
        value: Any,
        value_bytes: bytes | None,
        cluster: ClusterSnapshot,
    ) -> int:
        """The partition, from 0 to ``cluster.partition_counts[topic] - 1``.

        ``cluster`` also has ``partitions(topic)`` with leaders and replicas, and ``available_partitions(topic)``.
        ``key`` and ``value``: as given to ``send``; for columns and ``SyncProducer``, the same as their bytes. ``send``
        raises the error that this raises; the record is not sent.
        """

    def on_new_batch(self, topic: str, cluster: ClusterSnapshot, previous: int) -> None:
        """Called if the open batch of ``previous`` has no room for the record; then ``partition`` is called once more,
        as in Kafka 2.4 to 3.9 (``Partitioner.onNewBatch``). Called only if a class overrides it.
        """


class RecordFields(NamedTuple):
    """The fields of a record that a ``RecordPartitioner`` reads."""

    topic: str
    key: Any
    key_bytes: bytes | None
    value: Any
    value_bytes: bytes | None


class CustomPartitioner(Partitioner):
    """Runs a user's partitioner and checks its result; a row that names its partition keeps it.

    Raises ``InvalidRecordError`` that names the partitioner, and the row with a partition that does not exist.
    """

    def __init__(self, name: str, partitioner: Partitioner | RecordPartitioner) -> None:
        self._name = name
        self._partitioner = partitioner
        self.per_record = isinstance(partitioner, RecordPartitioner)
        self.asks_again = self.per_record and type(partitioner).on_new_batch is not RecordPartitioner.on_new_batch  # type: ignore[union-attr]

    @classmethod
    def load(cls, name: str) -> CustomPartitioner:
        """Imports ``package.module:Class`` and instantiates it without arguments. Raises ``ConfigError``."""
        return cls(name, instance("partitioner.class", name, ("partition",), "Partitioner or RecordPartitioner"))

    def configure(self, config: Mapping[str, object]) -> None:
        if hasattr(self._partitioner, "configure"):
            self._partitioner.configure(config)

    def close(self) -> None:
        if hasattr(self._partitioner, "close"):
            self._partitioner.close()

    def place(
        self,
        record: RecordFields,
        size: int,
        cluster: ClusterSnapshot,
        rooms: BatchRooms | None,
        row: int | None = None,
    ) -> int:
        """The partition that the ``RecordPartitioner`` chooses for a record of ``size`` bytes. With ``rooms``, it
        chooses again if the record needs a new batch (Java: ``abortForNewBatch``).
        """
        partitioner = self._partitioner
        assert isinstance(partitioner, RecordPartitioner)
        partition = self._check(partitioner.partition(*record, cluster), record.topic, cluster, row)
        if rooms is not None:
            if rooms.left(partition) < size:
                partitioner.on_new_batch(record.topic, cluster, partition)
                partition = self._check(partitioner.partition(*record, cluster), record.topic, cluster, row)
            rooms.take(partition, size)
        return partition

    def _check(self, partition: object, topic: str, cluster: ClusterSnapshot, row: int | None) -> int:
        count = cluster.partition_counts.get(topic, 0)
        if isinstance(partition, int | np.integer) and not isinstance(partition, bool) and 0 <= partition < count:
            return int(partition)
        raise self._outside(repr(partition), topic, count, row)

    def _outside(self, partition: object, topic: str, count: int, row: int | None) -> InvalidRecordError:
        where = "a record" if row is None else f"row {row}"
        return InvalidRecordError(
            f"partitioner.class {self._name} chose partition {partition} for {where} of topic {topic}, which has "
            f"partitions 0 to {count - 1}.",
            row,
        )

    def partition(
        self, topic: str, columns: RecordColumns, named: Partitions, sizes: Int64Array, count: int, load: PartitionLoad
    ) -> Int32Array:
        if isinstance(self._partitioner, RecordPartitioner):
            return self._row_by_row(topic, columns, named, sizes, load)
        given = named
        if named is not None:
            given = np.where(named == LEFT_OUT, np.int32(0), named)
        chosen = np.asarray(self._partitioner.partition(topic, columns, given, sizes, count, load))
        if chosen.shape != (len(columns),) or chosen.dtype.kind not in "iu":
            raise InvalidRecordError(
                f"partitioner.class {self._name} must return one whole number per row: for {len(columns)} rows of "
                f"topic {topic} it gave {chosen.dtype} values of shape {chosen.shape}."
            )
        if named is not None:
            chosen = np.where(named == NO_PARTITION, chosen, named)
        outside = ((chosen < 0) | (chosen >= count)) & (chosen != LEFT_OUT)
        if outside.any():
            row = int(np.argmax(outside))
            raise self._outside(chosen[row], topic, count, row)
        return chosen.astype(np.int32)

    def _row_by_row(
        self, topic: str, columns: RecordColumns, named: Partitions, sizes: Int64Array, load: PartitionLoad
    ) -> Int32Array:
        partitions = fresh_partitions(named, len(columns))
        rooms = load.rooms if self.asks_again else None
        keys, values = columns.key, columns.value
        for row, given in enumerate(partitions.tolist()):
            if given != NO_PARTITION:
                if rooms is not None and given != LEFT_OUT:
                    rooms.take(given, int(sizes[row]))
                continue
            key = None if keys is None else keys[row].as_py()
            value = None if values is None else values[row].as_py()
            fields = RecordFields(topic, key, key, value, value)
            partitions[row] = self.place(fields, int(sizes[row]), load.cluster, rooms, row)
        return partitions
