"""``FewRecords``: records of ``send`` that are encoded one by one, because they are too few for columns.

Columns have a fixed cost, which is that of some sixty records, and Arrow releases the interpreter's lock in each call;
beside a busy thread it takes 5 ms to get the lock back. A program that sends a record and waits for it would need twice
the CPU. The batches and their bytes are the same as those of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final, NamedTuple

import numpy as np

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.producer.rows import RowsByPartition, RowTimes, Run

FEW: Final = 64


class RecordFields(NamedTuple):
    """``headers``: the encoded header section."""

    key: bytes | None
    value: bytes | None
    headers: bytes


@dataclass(frozen=True, slots=True)
class FewRecords(RowsByPartition):
    """Records of one topic. ``fields``: those of each record, in the order of the runs."""

    fields: Sequence[RecordFields]

    @classmethod
    def group(
        cls,
        topic: str,
        fields: Sequence[RecordFields],
        partitions: Sequence[int],
        sizes: Sequence[int],
        limit: int,
        times: RowTimes,
    ) -> FewRecords:
        """The records sorted stably by ``partitions``. ``sizes``: the upper bound in bytes of each record."""
        order = None
        if partitions.count(partitions[0]) < len(partitions):
            rows = sorted(range(len(partitions)), key=partitions.__getitem__)
            fields, partitions = [fields[row] for row in rows], [partitions[row] for row in rows]
            sizes = [sizes[row] for row in rows]
            order = np.array(rows)
        runs, start = [], 0
        for partition, same in groupby(partitions):
            end = start + sum(1 for _ in same)
            runs.append(Run(TopicPartition(topic, partition), start, end))
            start = end
        cumulative = [*accumulate(sizes, initial=0)]
        return cls(order, runs, cumulative, limit, times.of_rows(order), np.array(sizes), fields)
