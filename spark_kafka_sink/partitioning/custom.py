"""A partitioner class of the user: over columns (``Partitioner``), or per record (``RecordPartitioner``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module

import numpy as np

from spark_kafka_sink.errors import ConfigError, InvalidRecordError
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN, Partitioner, PartitionLoad
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns


class RecordPartitioner(ABC):
    """Base of partitioners that choose for one record at a time, as Java's ``clients.producer.Partitioner`` does.

    Called for every record that names no partition: microseconds a row, where a ``Partitioner`` over columns takes
    nanoseconds.
    """

    @abstractmethod
    def partition(self, topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        """The partition, from 0 to ``count - 1``. Several threads may call it at once."""


class CustomPartitioner:
    """Runs a user's partitioner and checks its result; a row that names its partition keeps it.

    Raises ``InvalidRecordError`` that names the partitioner, and the row with a partition that does not exist.
    """

    def __init__(self, name: str, partitioner: Partitioner | RecordPartitioner) -> None:
        self._name = name
        self._partitioner = partitioner

    @classmethod
    def load(cls, name: str) -> CustomPartitioner:
        """Imports ``package.module:Class`` and instantiates it without arguments. Raises ``ConfigError``."""
        module, _, path = name.partition(":")
        try:
            made = getattr(import_module(module), path)()
        except Exception as error:  # the user's module and constructor may raise anything
            raise ConfigError([f"partitioner.class {name} cannot be loaded: {error!r}."]) from error
        if not callable(getattr(made, "partition", None)):
            raise ConfigError([
                f"partitioner.class {name} is no partitioner: it needs the method of Partitioner or RecordPartitioner."
            ])  # fmt: skip
        return cls(name, made)

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
            chosen = _row_by_row(self._partitioner, topic, columns, explicit, count)
        else:
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


def _row_by_row(
    partitioner: RecordPartitioner, topic: str, columns: RecordColumns, explicit: Int32Array | None, count: int
) -> Int32Array:
    partitions = np.full(len(columns), NOT_GIVEN, np.int32) if explicit is None else explicit.copy()
    keys, values = columns.key, columns.value
    for row in np.flatnonzero(partitions == NOT_GIVEN).tolist():
        key = None if keys is None else keys[row].as_py()
        value = None if values is None else values[row].as_py()
        partitions[row] = partitioner.partition(topic, key, value, count)
    return partitions
