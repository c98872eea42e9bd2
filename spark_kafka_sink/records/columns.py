"""Arrow arrays of any string or binary flavour → the columns that the encoder works on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrow import binary_array, int32_array, null_mask, raw_numbers
from spark_kafka_sink.records.row_join import Order, RowJoin
from spark_kafka_sink.records.varints import Int64Array

_MILLIS_PER_UNIT = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Rows of one topic, column by column, all of one length; at least one column is given.

    ``key`` and ``value``: None = null in every row. ``headers``: each slot the encoded header section (count, then the
    headers), as ``header_column`` makes it; None = no headers in any row. ``timestamps``: epoch ms, int64; None = the
    caller has one for all.
    """

    key: pa.BinaryArray | None = None
    value: pa.BinaryArray | None = None
    headers: pa.BinaryArray | None = None
    timestamps: Int64Array | None = None

    def __len__(self) -> int:
        columns = (self.value, self.key, self.headers, self.timestamps)
        return next(len(column) for column in columns if column is not None)

    def take(self, order: Order) -> RecordColumns:
        """Row ``i`` of the answer is row ``order[i]``; copies. (``encode_records`` takes an order without this.)"""
        index = int32_array(np.asarray(order, np.int32))
        return RecordColumns(
            None if self.key is None else self.key.take(index),
            None if self.value is None else self.value.take(index),
            None if self.headers is None else self.headers.take(index),
            None if self.timestamps is None else self.timestamps[order],
        )

    def slice(self, start: int, length: int) -> RecordColumns:
        """``length`` rows (fewer at the end) from row ``start`` on, without a copy."""
        return RecordColumns(
            None if self.key is None else self.key.slice(start, length),
            None if self.value is None else self.value.slice(start, length),
            None if self.headers is None else self.headers.slice(start, length),
            None if self.timestamps is None else self.timestamps[start : start + length],
        )


def binary_column(array: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """Any array of strings or bytes as binary with int32 offsets: large, view, fixed size, dictionary, chunked, null.

    Slice first: only the array's own slots are converted, and they may hold at most 2 GiB. Without a copy where the
    layout is binary's already. InvalidRecordError for any other type.
    """
    array = _one_array(array)
    kind = array.type
    if pt.is_binary(kind):
        return array
    if pt.is_dictionary(kind):
        return binary_column(array.dictionary_decode())
    if pt.is_large_binary(kind) or pt.is_large_string(kind):
        # The cast looks at the offsets themselves: a small slice beyond 2 GiB of its buffer would be refused.
        array = pa.concat_arrays([array])
    elif not (
        pt.is_string(kind)
        or pt.is_string_view(kind)
        or pt.is_binary_view(kind)
        or pt.is_fixed_size_binary(kind)
        or pt.is_null(kind)
    ):
        raise InvalidRecordError(f"cannot write a column of type {kind} as bytes: it must be string or binary")
    return array.cast(pa.binary())


def slot_lengths(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Bytes of each slot, -1 where it is null (a null slot's offsets may span bytes)."""
    offsets = slot_offsets(array)
    lengths = offsets[1:] - offsets[:-1]
    if array.null_count:
        lengths[null_mask(array)] = -1
    return lengths


def slot_offsets(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """The ``len(array) + 1`` offsets into ``array.buffers()[2]``."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, 4 * array.offset)


def timestamp_column(array: pa.Array | pa.ChunkedArray, default_ms: int) -> Int64Array:
    """A timestamp of any unit, or an integer of epoch ms → epoch ms; null → ``default_ms``.

    Finer units are rounded down, as Spark does. InvalidRecordError for a negative one, as Java's ``ProducerRecord``.
    """
    array = _one_array(array)
    kind = array.type
    if pt.is_null(kind):
        return np.full(len(array), default_ms, np.int64)
    if not (pt.is_timestamp(kind) or pt.is_integer(kind)):
        raise InvalidRecordError(f"cannot read record timestamps from type {kind}: it must be timestamp or bigint (ms)")
    factor, divisor = _MILLIS_PER_UNIT[kind.unit] if pt.is_timestamp(kind) else (1, 1)
    numbers = array.cast(pa.int64())
    millis: Int64Array = raw_numbers(numbers, np.int64) * factor // divisor
    if array.null_count:
        millis[null_mask(array)] = default_ms
    if millis.min(initial=0) < 0:
        row = int(np.argmax(millis < 0))
        raise InvalidRecordError(
            f"Invalid timestamp: {millis[row]}. Timestamp should always be non-negative or null.", row
        )
    return millis


def header_column(array: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """list<struct<key, value>> or map<string, …> → each slot an encoded header section, never null.

    Keys and values of any string or binary flavour; a null list has no headers, a header's value may be null.
    InvalidRecordError, with its row, for a header whose key is null (text as in Java's ``DefaultRecord``).
    """
    array = _one_array(array)
    if pt.is_null(array.type):
        array = array.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])))
    counts, headers = _flatten(array)
    keys = binary_column(headers[0])
    if keys.null_count:
        place = int(np.argmax(null_mask(keys)))
        row = int(np.searchsorted(np.cumsum(counts), place, side="right"))
        raise InvalidRecordError("Invalid null header key found in headers", row)
    values = binary_column(headers[1])
    flat = RowJoin(len(keys))
    flat.varints(slot_lengths(keys))
    flat.column(keys)
    flat.varints(slot_lengths(values))
    flat.column(values)
    data, starts = flat.finish()
    ends = np.concatenate(([0], np.cumsum(counts)))
    grouped = binary_array(np.asarray(starts)[ends], data)
    sections = RowJoin(len(array))
    sections.varints(counts)
    sections.column(grouped)
    data, starts = sections.finish()
    return binary_array(np.ascontiguousarray(starts), data)


def _one_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)


def _flatten(array: pa.Array) -> tuple[Int64Array, tuple[pa.Array, pa.Array]]:
    """The number of headers of each row, and the keys and values of all rows; those under a null list are left out."""
    kind = array.type
    if not (pt.is_map(kind) or ((pt.is_list(kind) or pt.is_large_list(kind)) and pt.is_struct(kind.value_type))):
        raise InvalidRecordError(
            f"cannot write a column of type {kind} as headers: it must be array<struct<key:string,value:binary>> or map"
        )
    if pt.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    lengths = pc.list_value_length(array)
    counts: Int64Array = raw_numbers(lengths, np.int64 if pt.is_large_list(kind) else np.int32).astype(np.int64)
    if lengths.null_count:
        counts[null_mask(lengths)] = 0
    # Both flattens leave out what null parents still span and respect slices.
    entries = array.flatten()
    names = [entries.type.field(place).name for place in range(entries.type.num_fields)]
    if sorted(names) != ["key", "value"]:
        raise InvalidRecordError(f"a header must be a struct of key and value, not of {', '.join(names)}")
    fields = dict(zip(names, entries.flatten(), strict=True))
    return counts, (fields["key"], fields["value"])
