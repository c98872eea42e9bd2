"""``Partitioner``: gives every row of a slice its partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns

NOT_GIVEN = -1
"""In an ``explicit`` column: the row names no partition."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The load of a topic's partitions at one moment (Java: ``BuiltInPartitioner.PartitionLoadStats``).

    ``available``: the partitions whose leader has taken data within ``partitioner.availability.timeout.ms``;
    ``queue_lengths``: the number of waiting batches of each.
    """

    available: tuple[int, ...]
    queue_lengths: tuple[int, ...]


class Partitioner(Protocol):
    """Chooses partitions for whole columns, where Java's ``clients.producer.Partitioner`` chooses for one record.

    Runs on the thread that appends; several threads may call it at once.
    """

    def partition(
        self,
        topic: str,
        columns: RecordColumns,
        explicit: Int32Array | None,
        sizes: Int64Array,
        count: int,
        load: PartitionLoad,
    ) -> Int32Array:
        """The partition of each row, from 0 to ``count - 1``.

        ``explicit``: the partitions that rows name themselves, already checked, ``NOT_GIVEN`` where they name none;
        these rows keep them. ``sizes``: bytes of each row as a record.
        """
