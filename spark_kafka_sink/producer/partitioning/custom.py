"""A partitioner class of the user: over columns (``Partitioner``), or per record (``RecordPartitioner``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from spark_kafka_sink.common.config.rules import instance
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.producer.partitioning.partitioner import (
    LEFT_OUT,
    NOT_GIVEN,
    BatchRooms,
    Partitioner,
    PartitionLoad,
    fresh_partitions,
)
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns


class RecordPartitioner(ABC):
    """Base of partitioners that choose for one record at a time, as Java's ``clients.producer.Partitioner`` does.

    Called for every record that names no partition, by several threads at once if several send: microseconds a row,
    where a ``Partitioner`` over columns takes nanoseconds.
    """

    def configure(self, config: Mapping[str, object]) -> None:  # noqa: B027
        """Called first, once: the producer's options by Kafka's names."""

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
        ``key`` and ``value``: as given to ``send``; of columns and of ``SyncProducer`` the same as their bytes.
        ``send`` raises the error that this raises; the record is not sent.
        """

    def on_new_batch(self, topic: str, cluster: ClusterSnapshot, previous: int) -> None:  # noqa: B027
        """Called if the open batch of ``previous`` has no room for the record; then ``partition`` is called once more.

        As in Kafka 2.4 to 3.9 (``Partitioner.onNewBatch``). Only for classes that override it.
        """

    def close(self) -> None:  # noqa: B027
        """Called once, when the producer is closed."""


class RecordFields(NamedTuple):
    """What a ``RecordPartitioner`` reads of a record."""

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
        """As in ``Partitioner``."""
        if hasattr(self._partitioner, "configure"):
            self._partitioner.configure(config)

    def close(self) -> None:
        """As in ``Partitioner``."""
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
        """The partition that the ``RecordPartitioner`` chooses for a record of ``size`` bytes.

        It chooses again when the record needs a new batch (Java: ``abortForNewBatch``), if there are ``rooms``.
        """
        partitioner = self._partitioner
        assert isinstance(partitioner, RecordPartitioner)
        partition = self._checked(partitioner.partition(*record, cluster), record.topic, cluster, row)
        if rooms is not None:
            if rooms.left(partition) < size:
                partitioner.on_new_batch(record.topic, cluster, partition)
                partition = self._checked(partitioner.partition(*record, cluster), record.topic, cluster, row)
            rooms.take(partition, size)
        return partition

    def _checked(self, partition: object, topic: str, cluster: ClusterSnapshot, row: int | None) -> int:
        known = range(cluster.partition_counts.get(topic, 0))
        if isinstance(partition, int | np.integer) and not isinstance(partition, bool) and partition in known:
            return int(partition)
        where = "a record" if row is None else f"row {row}"
        raise InvalidRecordError(
            f"partitioner.class {self._name} chose partition {partition!r} for {where} of topic {topic}, which has "
            f"partitions 0 to {len(known) - 1}.",
            row,
        )

    def partition(
        self,
        topic: str,
        columns: RecordColumns,
        explicit: Int32Array | None,
        sizes: Int64Array,
        count: int,
        load: PartitionLoad,
    ) -> Int32Array:
        """As in ``Partitioner``."""
        if isinstance(self._partitioner, RecordPartitioner):
            return self._row_by_row(topic, columns, explicit, sizes, load)
        given = explicit
        if explicit is not None:
            given = np.where(explicit == LEFT_OUT, np.int32(0), explicit)
        chosen = np.asarray(self._partitioner.partition(topic, columns, given, sizes, count, load))
        if chosen.shape != (len(columns),) or chosen.dtype.kind not in "iu":
            raise InvalidRecordError(
                f"partitioner.class {self._name} must return one whole number per row: for {len(columns)} rows of "
                "topic "
                f"{topic} it gave {chosen.dtype} values of shape {chosen.shape}."
            )
        if explicit is not None:
            chosen = np.where(explicit == NOT_GIVEN, chosen, explicit)
        outside = ((chosen < 0) | (chosen >= count)) & (chosen != LEFT_OUT)
        if outside.any():
            row = int(np.argmax(outside))
            raise InvalidRecordError(
                f"partitioner.class {self._name} chose partition {chosen[row]} for row {row} of topic {topic}, "
                f"which has partitions 0 to {count - 1}.",
                row,
            )
        return chosen.astype(np.int32)

    def _row_by_row(
        self, topic: str, columns: RecordColumns, explicit: Int32Array | None, sizes: Int64Array, load: PartitionLoad
    ) -> Int32Array:
        partitions = fresh_partitions(explicit, len(columns))
        rooms = BatchRooms(load.batches, topic) if self.asks_again and load.batches is not None else None
        keys, values = columns.key, columns.value
        for row, given in enumerate(partitions.tolist()):
            if given != NOT_GIVEN:
                if rooms is not None and given != LEFT_OUT:
                    rooms.take(given, int(sizes[row]))
                continue
            key = None if keys is None else keys[row].as_py()
            value = None if values is None else values[row].as_py()
            fields = RecordFields(topic, key, key, value, value)
            partitions[row] = self.place(fields, int(sizes[row]), load.cluster, rooms, row)
        return partitions
