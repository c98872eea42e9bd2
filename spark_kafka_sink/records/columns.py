"""Records as columns: key, value, headers and timestamps of many rows, and the topic of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.common.model import NO_TIMESTAMP
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrays import Int32Array, Int64Array, Order, int32_array, stable_order


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows as columns of the same length, of which at least one is not None.

    ``key`` and ``value``: None if null in every row. ``headers``: an encoded header section (count, then the headers)
    per row, as ``header_column`` makes it; None if no row has headers. ``timestamps``: epoch ms, int64,
    ``NO_TIMESTAMP`` (-1) for a row without a timestamp; None if the caller has one timestamp for all rows.
    """

    key: pa.BinaryArray | None = None
    value: pa.BinaryArray | None = None
    headers: pa.BinaryArray | None = None
    timestamps: Int64Array | None = None

    def __len__(self) -> int:
        columns = (self.value, self.key, self.headers, self.timestamps)
        return next(len(column) for column in columns if column is not None)

    def take(self, order: Order) -> RecordColumns:
        """Copies the rows into this order. (``encode_records`` takes an order itself, and needs no copy.)"""
        index = int32_array(np.asarray(order, np.int32))
        key, value, headers = (
            None if column is None else pc.take(column, index, boundscheck=False)
            for column in (self.key, self.value, self.headers)
        )
        return RecordColumns(key, value, headers, None if self.timestamps is None else self.timestamps[order])

    def with_timestamps(self, now_ms: int) -> RecordColumns:
        """These columns with ``now_ms`` for the rows that name no timestamp."""
        if self.timestamps is None:
            return self
        return replace(self, timestamps=np.where(self.timestamps == NO_TIMESTAMP, now_ms, self.timestamps))

    def slice(self, start: int, length: int) -> RecordColumns:
        """``length`` rows from row ``start`` (fewer at the end), without a copy."""
        return RecordColumns(
            None if self.key is None else self.key.slice(start, length),
            None if self.value is None else self.value.slice(start, length),
            None if self.headers is None else self.headers.slice(start, length),
            None if self.timestamps is None else self.timestamps[start : start + length],
        )


@dataclass(frozen=True, slots=True)
class TopicColumn:
    """The topic of each row: ``names[codes[row]]``, or the only name if ``codes`` is None.

    ``names``: each topic once, in the order of their first rows. For example, the rows a, b, a have the names [a, b]
    and the codes [0, 1, 0].
    """

    names: Sequence[str]
    codes: Int32Array | None = None

    @classmethod
    def of(cls, topic: str | TopicColumn) -> TopicColumn:
        """A column of one topic, or the column itself. Raises ``InvalidRecordError`` for anything else."""
        return topic if isinstance(topic, TopicColumn) else cls((topic_name(topic),))

    def __getitem__(self, rows: slice | Order) -> TopicColumn:
        return self if self.codes is None else TopicColumn(self.names, self.codes[rows])

    def naming(self, rows: npt.NDArray[np.bool_]) -> TopicColumn:
        """The column with the names of these rows only. At least one row must be chosen. Other rows get any of the
        names."""
        if self.codes is None:
            return self
        used = np.bincount(self.codes[rows], minlength=len(self.names)) > 0
        if used.all():
            return self
        names = [name for name, is_used in zip(self.names, used.tolist(), strict=True) if is_used]
        numbers = np.maximum(np.cumsum(used) - 1, 0).astype(np.int32)
        return TopicColumn(names, None if len(names) == 1 else numbers[self.codes])

    def groups(self, rows: npt.NDArray[np.intp]) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
        """The numbers ``rows`` by topic, in their order. Topics without rows are left out."""
        if not len(rows):
            return
        if self.codes is None:
            yield self.names[0], rows
            return
        codes = self.codes[rows]
        rows = rows[stable_order(codes)]
        ends = np.cumsum(np.bincount(codes, minlength=len(self.names))).tolist()
        for name, start, end in zip(self.names, (0, *ends), ends, strict=False):
            if end > start:
                yield name, rows[start:end]


def topic_name(topic: object) -> str:
    """The topic as plain str, for example of a StrEnum. Raises ``InvalidRecordError``."""
    if not isinstance(topic, str) or not topic:
        raise InvalidRecordError(f"Topic must be a non-empty str, not {topic!r}.")
    return str.__str__(topic)
