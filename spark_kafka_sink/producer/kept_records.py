"""``KeptRecords``: records of ``send`` that the sender thread has taken and not yet encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.producer.inbox import NO_OTHERS, RECORD_OVERHEAD, OtherFields, TopicRecords
from spark_kafka_sink.producer.partitioner import NO_PARTITION
from spark_kafka_sink.records.arrays import Int64Array, byte_lengths, bytes_column
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import NO_HEADERS


@dataclass(slots=True, eq=False)
class KeptRecords:
    """Records of one topic that are taken and not yet encoded. ``size``: upper bound of their encoded bytes, which the
    pool has charged. ``sent``: for each ms in which records were sent, the index of its first record and the time
    (epoch ms).
    """

    records: TopicRecords
    created: float
    size: int = 0
    numbers: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    key_lengths: list[int] = field(default_factory=list)
    value_lengths: list[int] = field(default_factory=list)
    others: list[OtherFields | None] = field(default_factory=list)
    """The other fields of the first records; the rest have none."""
    sent: list[tuple[int, int]] = field(default_factory=list)

    def add(self, fields: Sequence[list[Any]], others: list[OtherFields] | None, sent_ms: int) -> int:
        """Adds records. Returns their size."""
        numbers, keys, values = fields
        if not self.sent or self.sent[-1][1] != sent_ms:
            self.sent.append((len(self.numbers), sent_ms))
        key_lengths, value_lengths = byte_lengths(keys), byte_lengths(values)
        size = RECORD_OVERHEAD * len(numbers) + sum(key_lengths) + sum(value_lengths)
        if others is not None:
            self.others += [None] * (len(self.numbers) - len(self.others))
            self.others += others
            size += sum(len(other.headers) for other in others if other.headers is not None)
        self.numbers += numbers
        self.keys += keys
        self.values += values
        self.key_lengths += key_lengths
        self.value_lengths += value_lengths
        self.size += size
        return size

    def columns(self) -> tuple[RecordColumns, npt.NDArray[np.int32] | None, Int64Array | int]:
        """The records, the partitions that they name, and when they were sent (epoch ms; one time if all are the same).

        The columns have ``timestamps`` if a record has its own.
        """
        sent: Int64Array | int = self.sent[0][1]
        if len(self.sent) > 1:
            starts, times = zip(*self.sent, strict=True)
            sent = np.repeat(np.array(times), np.diff(starts, append=len(self.numbers)))
        named = headers = timestamps = None
        if self.others:
            fields = [other or NO_OTHERS for other in self.others]
            fields += [NO_OTHERS] * (len(self.numbers) - len(fields))
            named = _fill([each.partition for each in fields], NO_PARTITION, np.int32)
            timestamps = _fill([each.timestamp for each in fields], sent, np.int64)
            if any(each.headers for each in fields):
                headers = bytes_column([each.headers or NO_HEADERS for each in fields])
        key = None if _are_none(self.keys) else bytes_column(self.keys, self.key_lengths)
        value = None
        if key is None or not _are_none(self.values):
            value = bytes_column(self.values, self.value_lengths)
        return RecordColumns(key, value, headers, timestamps), named, sent


def _are_none(values: list[bytes | None]) -> bool:
    return values[0] is None and values.count(None) == len(values)


def _fill(
    given: Sequence[int | None], others: Int64Array | int, kind: type[np.signedinteger]
) -> npt.NDArray[Any] | None:
    """The given numbers, with ``others`` in the places of missing ones; None if all are missing."""
    rows = [row for row, number in enumerate(given) if number is not None]
    column = np.full(len(given), others, kind)
    column[rows] = [given[row] for row in rows]
    return column if rows else None
