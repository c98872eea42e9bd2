"""Large values → records of a record batch v2 that refer to the values instead of copying them (ADR 25).

The records become pieces: bytes of ours (lengths, deltas, keys, headers), and between them the values where Arrow has
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import Int32Array, Int64Array, Order, RecordColumns
from spark_kafka_sink.records.encode import NO_ATTRIBUTES, NO_HEADERS, NULL
from spark_kafka_sink.records.sizes import FieldLengths, encode_varint, varint_sizes

LARGE_VALUE = 16 << 10
"""The smallest value, in bytes, that is not copied. Below, two more buffers per record cost as much as a copy
(ADR 25)."""

_varint = lru_cache(maxsize=1 << 12)(encode_varint)


class RecordPieces(NamedTuple):
    """The records of a range: ``buffers`` in their order, ``size`` bytes together. ``value_bytes`` of them are slices
    of Arrow's buffer.
    """

    buffers: list[bytes | memoryview]
    size: int
    value_bytes: int


def are_large(sizes: Int32Array) -> bool:
    """Whether values of these sizes are large on average."""
    return int(sizes.sum(dtype=np.int64)) >= LARGE_VALUE * len(sizes)


def value_data(value: pa.BinaryArray) -> tuple[memoryview, int, int]:
    """The bytes of all values; address and size of what stays allocated while a slice of them is in use."""
    whole = buffer = value.buffers()[2]
    while whole.parent is not None:
        whole = whole.parent
    return memoryview(buffer).cast("B"), whole.address, whole.size


@dataclass(frozen=True, slots=True)
class LargeRows:
    """Rows in the order of their records. ``starts``: where each value begins in ``data``. ``keys`` and ``headers``:
    None where there are none.
    """

    keys: pa.BinaryArray | None
    headers: pa.BinaryArray | None
    lengths: FieldLengths
    starts: list[int]
    data: memoryview

    @classmethod
    def of(
        cls, columns: RecordColumns, lengths: FieldLengths, order: Order | None, data: memoryview
    ) -> LargeRows | None:
        """The rows ``order`` of ``columns`` (None: all), whose values are in ``data``. Returns None if they are not
        large on average: Python handles each of them.
        """
        value, sizes = columns.value, lengths.value
        assert value is not None
        assert sizes is not None
        if order is not None:
            sizes = sizes[order]
        if not are_large(sizes):
            return None
        starts = np.frombuffer(value.buffers()[1], np.int32, len(value), 4 * value.offset)
        others = RecordColumns(columns.key, None, columns.headers)
        if order is not None:
            lengths, starts = lengths.take(order), starts[order]
            if columns.key is not None or columns.headers is not None:
                others = others.take(order)
        return cls(others.key, others.headers, lengths, starts.tolist(), data)

    def encode(
        self, offset_deltas: npt.NDArray[np.integer], timestamp_deltas: Int64Array | int, bounds: Sequence[int]
    ) -> list[RecordPieces]:
        """The same bytes as by ``encode_records``, for the rows between any two neighbours of ``bounds``."""
        heads = self._heads(offset_deltas, timestamp_deltas)
        values = self.lengths.value
        assert values is not None
        tails = repeat(NO_HEADERS) if self.headers is None else self.headers.to_pylist()
        rows = zip(heads, self.starts, values.tolist(), tails, strict=False)
        return [_pieces(islice(rows, end - start), self.data) for start, end in pairwise(bounds)]

    def _heads(self, offset_deltas: npt.NDArray[np.integer], timestamp_deltas: Int64Array | int) -> Iterable[bytes]:
        """The bytes of each record in front of its value."""
        lengths, keys = self.lengths, self.keys
        bodies = lengths.payload + varint_sizes(offset_deltas.astype(np.int64, copy=False)) + len(NO_ATTRIBUTES)
        if isinstance(timestamp_deltas, int):
            timestamp = encode_varint(timestamp_deltas)
            timestamps: Iterable[bytes] = repeat(timestamp)
            bodies += len(timestamp)
        else:
            timestamps = map(_varint, timestamp_deltas.tolist())
            bodies += varint_sizes(timestamp_deltas)
        assert lengths.value is not None
        parts = (
            map(_varint, bodies.tolist()),
            repeat(NO_ATTRIBUTES),
            timestamps,
            map(_varint, offset_deltas.tolist()),
            repeat(NULL) if keys is None or lengths.key is None else map(_varint, lengths.key.tolist()),
            repeat(b"") if keys is None else (key or b"" for key in keys.to_pylist()),
            map(_varint, lengths.value.tolist()),
        )
        return map(b"".join, zip(*parts, strict=False))


def _pieces(rows: Iterable[tuple[bytes, int, int, bytes]], data: memoryview) -> RecordPieces:
    """``rows``: the bytes before each value, where it is in ``data``, and the bytes after it."""
    buffers: list[bytes | memoryview] = []
    size = value_bytes = 0
    between: list[bytes | memoryview] = []
    for head, start, length, tail in rows:
        between.append(head)
        if length >= LARGE_VALUE:
            buffers += b"".join(between), data[start : start + length]
            size += len(buffers[-2])
            value_bytes += length
            between = [tail]
        else:
            between += data[start : start + max(length, 0)], tail
    buffers.append(b"".join(between))
    return RecordPieces(buffers, size + len(buffers[-1]) + value_bytes, value_bytes)
