"""Large values → records of a record batch v2 that refer to the values instead of copying them (ADR 25).

The records become pieces: bytes of ours (lengths, deltas, keys, headers, small values), and between them the large
values where Arrow has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import (
    Int32Array,
    Int64Array,
    Order,
    RecordColumns,
    binary_array,
    int32_array,
    slot_lengths,
)
from spark_kafka_sink.records.encode import NO_HEADERS, encode_records
from spark_kafka_sink.records.sizes import FieldLengths
from spark_kafka_sink.records.views import CAN_JOIN

LARGE_VALUE = 8 << 10
"""From here on, a value is referred to. Below, the two more buffers per record cost as much as the copy (ADR 25)."""


class RecordPieces(NamedTuple):
    """The records of a range: ``buffers`` in their order, ``size`` bytes together. ``value_bytes`` of them are slices
    of Arrow's buffer.
    """

    buffers: list[bytes | memoryview]
    size: int
    value_bytes: int


def has_large_values(lengths: FieldLengths) -> bool:
    """Whether some slices of these rows may become ``LargeRows``."""
    return CAN_JOIN and lengths.value is not None and int(lengths.value.max(initial=0)) >= LARGE_VALUE


def value_data(value: pa.BinaryArray) -> tuple[memoryview, int]:
    """The bytes of all values, and how many bytes stay allocated while a slice of them is in use."""
    whole = buffer = value.buffers()[2]
    while whole.parent is not None:
        whole = whole.parent
    return memoryview(buffer).cast("B"), whole.size


@dataclass(frozen=True, slots=True)
class LargeRows:
    """Rows in the order of their records. ``starts``: where each value begins in ``data``. ``large``: values that are
    not copied. ``columns`` have the keys, the headers, and the values without these.
    """

    columns: RecordColumns
    lengths: FieldLengths
    data: memoryview
    starts: Int32Array
    large: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, columns: RecordColumns, lengths: FieldLengths, order: Order | None, data: memoryview
    ) -> LargeRows | None:
        """The rows ``order`` of ``columns`` (None: all), whose values are in ``data``. Returns None if large values are
        less than half of the bytes: then all are copied.
        """
        if order is not None:
            lengths = lengths.take(order)
        value, sizes = columns.value, lengths.value
        assert value is not None
        assert sizes is not None
        large = sizes >= LARGE_VALUE
        if 2 * int(sizes[large].sum(dtype=np.int64)) < int(lengths.payload.sum()) or not large.any():
            return None
        starts = np.frombuffer(value.buffers()[1], np.int32, len(value), 4 * value.offset)
        others = RecordColumns(columns.key, None, columns.headers)
        if order is not None:
            starts = starts[order]
            if columns.key is not None or columns.headers is not None:
                others = others.take(order)
        small = _small_values(value, sizes, large, order)
        columns = RecordColumns(others.key, small, others.headers)
        return cls(columns, lengths, data, starts, large)

    def encode(
        self, offset_deltas: npt.NDArray[np.integer], timestamp_deltas: Int64Array | int, bounds: Sequence[int]
    ) -> list[RecordPieces]:
        """The same bytes as by ``encode_records``, for the rows between any two neighbours of ``bounds``."""
        encoded = encode_records(self.columns, offset_deltas, timestamp_deltas, None, self.lengths)
        own, own_starts = bytes(encoded.data), np.asarray(encoded.starts)
        headers = self.columns.headers
        tails = len(NO_HEADERS) if headers is None else slot_lengths(headers)
        assert self.lengths.value is not None
        rows = np.flatnonzero(self.large)
        begins, lengths = self.starts[rows].astype(np.int64), self.lengths.value[rows].astype(np.int64)
        places: list[int] = (own_starts[1:] - tails)[rows].tolist()
        each = list(zip(places, begins.tolist(), (begins + lengths).tolist(), strict=True))
        firsts = np.searchsorted(rows, bounds).tolist()
        value_bytes = np.concatenate(([0], np.cumsum(lengths)))[firsts].tolist()
        own_bounds = own_starts[np.asarray(bounds)].tolist()
        ranges = zip(pairwise(firsts), pairwise(own_bounds), pairwise(value_bytes), strict=True)
        data = self.data
        pieces: list[RecordPieces] = []
        for (first, last), (at, own_end), (before, after) in ranges:
            buffers: list[bytes | memoryview] = []
            size = own_end - at + after - before
            for place, begin, end in each[first:last]:
                buffers += own[at:place], data[begin:end]
                at = place
            buffers.append(own[at:own_end])
            pieces.append(RecordPieces(buffers, size, after - before))
        return pieces


def _small_values(
    value: pa.BinaryArray, sizes: Int32Array, large: npt.NDArray[np.bool_], order: Order | None
) -> pa.BinaryArray:
    """The values that are not ``large``, copied; the others are empty."""
    copied = np.where(large, np.int32(0), np.maximum(sizes, 0))
    offsets = np.zeros(len(copied) + 1, np.int32)
    np.cumsum(copied, out=offsets[1:])
    rows = np.flatnonzero(copied)
    if not len(rows):
        return binary_array(offsets, b"")
    picks = rows if order is None else order[rows]
    return binary_array(offsets, value.take(int32_array(picks.astype(np.int32))).buffers()[2])
