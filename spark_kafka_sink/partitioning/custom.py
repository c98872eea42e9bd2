"""A partitioner of the user's own: over columns (``Partitioner``), or row by row (``RecordPartitioner``)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.partitioning.partitioner import (
    NOT_GIVEN,
    Int32Array,
    Int64Array,
    Partitioner,
    PartitionLoad,
)
from spark_kafka_sink.records.columns import RecordColumns


class RecordPartitioner(ABC):
    """Base of partitioners that choose for one record at a time, as Java's ``clients.producer.Partitioner`` does.

    Called for every record that names no partition itself: it costs microseconds a row where a ``Partitioner`` over
    columns costs nanoseconds.
    """

    @abstractmethod
    def partition(self, topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        """The partition, from 0 to ``count - 1``. May be called from several threads at once."""


class RowByRow:
    """Makes a ``Partitioner`` of a ``RecordPartitioner``."""

    def __init__(self, chooser: RecordPartitioner) -> None:
        self._chooser = chooser

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
        free = np.arange(len(columns)) if explicit is None else np.flatnonzero(explicit == NOT_GIVEN)
        keys, values = columns.key, columns.value
        partitions = np.full(len(columns), NOT_GIVEN, np.int32) if explicit is None else explicit.copy()
        for row in free.tolist():
            key = None if keys is None else keys[row].as_py()
            value = None if values is None else values[row].as_py()
            partitions[row] = self._chooser.partition(topic, key, value, count)
        return partitions


class Checked:
    """Holds a partitioner that is not ours to its promises; a row that names its partition keeps it in any case.

    Raises ``InvalidRecordError`` that names the partitioner, and the row with a partition that does not exist.
    """

    def __init__(self, name: str, partitioner: Partitioner) -> None:
        self._name = name
        self._partitioner = partitioner

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
        chosen = np.asarray(self._partitioner.partition(topic, columns, explicit, sizes, count, load))
        if chosen.shape != (len(columns),) or chosen.dtype.kind not in "iu":
            raise InvalidRecordError(
                f"partitioner.class {self._name} must give one whole number per row: for {len(columns)} rows of topic "
                f"{topic} it gave {chosen.dtype} values of shape {chosen.shape}."
            )
        if explicit is not None:
            chosen = np.where(explicit == NOT_GIVEN, chosen, explicit)
        outside = (chosen < 0) | (chosen >= count)
        if outside.any():
            row = int(np.argmax(outside))
            raise InvalidRecordError(
                f"partitioner.class {self._name} chose partition {chosen[row]} for row {row} of topic {topic}, "
                f"which has partitions 0 to {count - 1}.",
                row,
            )
        return chosen.astype(np.int32)
