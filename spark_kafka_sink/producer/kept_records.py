"""``KeptRecords``: records of ``send`` that the sender thread has taken and not yet encoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.producer.few_records import RecordFields
from spark_kafka_sink.producer.inbox import RECORD_OVERHEAD, OtherFields, TopicRecords
from spark_kafka_sink.producer.partitioner import NO_PARTITION
from spark_kafka_sink.records.arrays import Int64Array, byte_lengths, bytes_column
from spark_kafka_sink.records.batch import NO_HEADERS
from spark_kafka_sink.records.columns import RecordColumns


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

    def columns(self, timestamps: Int64Array | int) -> RecordColumns:
        """``timestamps``: what ``timestamps()`` gives."""
        headers = None
        if any(other is not None and other.headers for other in self.others):
            headers = bytes_column(self._headers())
        key = None if _are_none(self.keys) else bytes_column(self.keys, self.key_lengths)
        value = None
        if key is None or not _are_none(self.values):
            value = bytes_column(self.values, self.value_lengths)
        return RecordColumns(key, value, headers, None if isinstance(timestamps, int) else timestamps)

    def fields(self) -> list[RecordFields]:
        """Key, value and headers, record by record."""
        return [*map(RecordFields, self.keys, self.values, self._headers())]

    def _headers(self) -> list[bytes]:
        headers = [NO_HEADERS if other is None else other.headers or NO_HEADERS for other in self.others]
        return headers + [NO_HEADERS] * (len(self.numbers) - len(headers))

    def timestamps(self) -> Int64Array | int:
        """Epoch ms; one if all are the same. A record without a timestamp of its own has the time of its ``send``."""
        sent: Int64Array | int = self.sent[0][1]
        if len(self.sent) > 1:
            starts, times = zip(*self.sent, strict=True)
            sent = np.repeat(np.array(times), np.diff(starts, append=len(self.numbers)))
        own = [None if other is None else other.timestamp for other in self.others]
        return sent if _are_none(own) else self._fill(own, sent, np.int64)

    def named(self) -> npt.NDArray[np.int32] | None:
        """The partitions that records name; None if none does."""
        named = [None if other is None else other.partition for other in self.others]
        return None if _are_none(named) else self._fill(named, NO_PARTITION, np.int32)

    def _fill(self, given: Sequence[int | None], others: Int64Array | int, kind: type[Any]) -> npt.NDArray[Any]:
        """The numbers of the first records, with ``others`` where they are None and for the rest."""
        column = np.full(len(self.numbers), others, kind)
        rows = [row for row, number in enumerate(given) if number is not None]
        column[rows] = [given[row] for row in rows]
        return column


def _are_none(values: Sequence[object]) -> bool:
    return not values or (values[0] is None and values.count(None) == len(values))
