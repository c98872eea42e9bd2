"""What a partitioner is: something that gives every row of a slice its partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.columns import RecordColumns

NOT_GIVEN = -1
"""In an ``explicit`` column: this row names no partition."""

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """How a topic's partitions stand at one moment (Java: ``BuiltInPartitioner.PartitionLoadStats``).

    ``available``: ids of the partitions that have a leader whose node has taken data within
    ``partitioner.availability.timeout.ms``; ``queue_lengths``: batches that wait for each of these.
    """

    available: tuple[int, ...]
    queue_lengths: tuple[int, ...]


class Partitioner(Protocol):
    """Chooses partitions for whole columns, where Java's ``clients.producer.Partitioner`` does for one record.

    Called on the thread that appends; several may do so at once.
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

        ``explicit``: partitions the rows name themselves, ``NOT_GIVEN`` where they do not; these are taken as they are
        (whoever read them has checked them). ``sizes``: bytes of each row as a record.
        """
