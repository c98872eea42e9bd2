"""Arrow arrays as the encoders read them: binary with int32 offsets, integers in numpy, without copies where possible.

Arrays are made from buffers and read through buffers: ``pyarrow.array`` imports pandas (ARCHITECTURE, "The hot path").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.common.model import LARGEST_INT64
from spark_kafka_sink.errors import InvalidRecordError

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Integers: TypeAlias = Int32Array | Int64Array
Order = npt.NDArray[np.integer]
"""Row numbers in a new order: row ``i`` of the result is row ``order[i]`` of the input."""

MILLIS_PER_UNIT = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""The factor and the divisor that turn a unit of Arrow into milliseconds."""

MAX_BYTES = (1 << 31) - (1 << 10)
"""The most bytes of a column. Arrow's offsets are int32, and some of its functions let them wrap. The rest up to 2 GiB
is for the bytes that a join adds at its ends."""


class RowsTooLargeError(InvalidRecordError):
    """Rows would take more bytes than a column, or a slice of one, may have. Fewer rows at once may do."""

    def __init__(self, message: str = "more than 2 GiB: take fewer rows at once", row: int | None = None) -> None:
        super().__init__(message, row)


def binary_column(array: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """Strings or bytes of any Arrow layout as binary with int32 offsets; no copy where the layout is binary already.

    Takes large, view, fixed-size, chunked and null arrays, and dictionaries, run ends and extension types of these.
    Slice before the call: only the array's own slots are converted, at most 2 GiB. Raises ``RowsTooLargeError``, and
    ``InvalidRecordError`` for any other type.
    """
    array = one_array(array)
    kind = array.type
    if pt.is_binary(kind):
        return array
    if pt.is_large_binary(kind) or pt.is_large_string(kind):
        # The cast checks absolute offsets: it would refuse a small slice beyond 2 GiB of its buffer.
        array = pa.concat_arrays([array])
    elif not (
        pt.is_string(kind)
        or pt.is_string_view(kind)
        or pt.is_binary_view(kind)
        or pt.is_fixed_size_binary(kind)
        or pt.is_null(kind)
    ):
        raise InvalidRecordError(f"cannot write a column of type {kind} as bytes: it must be string or binary")
    if pt.is_string(kind):
        return array.view(pa.binary())  # a cast reads all offsets
    return _from_views(array, pa.binary()) if is_view(kind) else array.cast(pa.binary())


def _from_views(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if int(view_lengths(array).sum(dtype=np.int64)) > MAX_BYTES:
        raise RowsTooLargeError  # the cast would let its offsets wrap
    return array.cast(kind)


def timestamp_column(array: pa.Array | pa.ChunkedArray, default_ms: int, *, takes_negative: bool = False) -> Int64Array:
    """Timestamps of any unit with a time zone, or integers in epoch ms, as epoch ms; null becomes ``default_ms``.

    Finer units are rounded down, as Spark does. Raises ``InvalidRecordError`` for a negative timestamp, as Java's
    ``ProducerRecord``, unless ``takes_negative`` (then no unit may be seconds); for one beyond 2**63 - 1 ms, and for
    any other type.
    """
    array = one_array(array)
    kind = array.type
    if pt.is_null(kind):
        return np.full(len(array), default_ms, np.int64)
    if not (pt.is_timestamp(kind) or pt.is_integer(kind)):
        raise InvalidRecordError(f"cannot read record timestamps from type {kind}: it must be timestamp or bigint (ms)")
    if pt.is_timestamp(kind) and kind.tz is None:
        raise InvalidRecordError(
            f"cannot read record timestamps from type {kind}, because it has no time zone: give it that of the times, "
            'as dt.tz_localize("UTC") of pandas does, or use epoch ms (integers)'
        )
    factor, divisor = MILLIS_PER_UNIT[kind.unit] if pt.is_timestamp(kind) else (1, 1)
    numbers = int64_numbers(array, "timestamp")
    missing = null_mask(array) if array.null_count else None
    if missing is not None:
        numbers[missing] = 0
    if not takes_negative and numbers.min(initial=0) < 0:
        row = int(np.argmax(numbers < 0))
        raise InvalidRecordError(negative_timestamp(int(numbers[row]) * factor // divisor), row)
    if numbers.max(initial=0) > LARGEST_INT64 // factor:
        row = int(np.argmax(numbers))
        millis = int(numbers[row]) * factor
        raise InvalidRecordError(f"Invalid timestamp: {millis}. Timestamp should be at most {LARGEST_INT64}.", row)
    numbers = numbers * factor // divisor
    if missing is not None:
        numbers[missing] = default_ms
    return numbers


def negative_timestamp(millis: int) -> str:
    """Java's text for a timestamp that is negative."""
    return f"Invalid timestamp: {millis}. Timestamp should always be non-negative or null."


def int64_numbers(array: pa.Array, name: str) -> Int64Array:
    """The integers, dates or times of a column; a null slot has any number. Raises ``InvalidRecordError`` with the row
    of a number that needs more than 63 bits.
    """
    if array.type != pa.uint64():
        return raw_numbers(array.cast(pa.int64()), np.int64)
    numbers = raw_numbers(array, np.int64)
    if ((numbers < 0) & ~null_mask(array)).any():
        row = int(np.argmax((numbers < 0) & ~null_mask(array)))
        value = int(numbers[row]) + (1 << 64)
        raise InvalidRecordError(f"Invalid {name}: {value}. It should be at most {LARGEST_INT64}.", row)
    return numbers


def one_array(array: pa.Array | pa.ChunkedArray, name: str = "column") -> pa.Array:
    """The chunks as one ``plain`` array. Raises ``InvalidRecordError`` for a layout that Arrow cannot decode."""
    if problems := undecodable(array.type):
        raise InvalidRecordError(f"{name}: {problems[0]}")
    if not isinstance(array, pa.ChunkedArray):
        return plain(array)
    return pa.concat_arrays(map(plain, array.chunks)) if array.num_chunks else plain(pa.nulls(0, array.type))


def plain(array: pa.Array) -> pa.Array:
    """The array without layouts that only save memory (dictionaries, run ends). For an extension type, its storage.

    Raises ``RowsTooLargeError``.
    """
    while True:
        if pt.is_dictionary(array.type):
            array = _without_views(array)
            _check_size(array.dictionary, array.indices)
            array = array.dictionary_decode()
        elif pt.is_run_end_encoded(array.type):
            slots = int32_array(np.arange(len(array.values), dtype=np.int32))
            runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, slots)
            order = pc.run_end_decode(runs.slice(array.offset, len(array)))
            _check_size(array.values, order)
            array = array.values.take(order)
        elif isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        else:
            return array


def _check_size(values: pa.Array, order: pa.Array) -> None:
    """Raises ``RowsTooLargeError`` if the slots of ``values`` in this order have more than 2 GiB, for which Arrow's
    offsets would wrap, or Arrow would crash."""
    if (pt.is_string(values.type) or pt.is_binary(values.type)) and values.nbytes * len(order) > MAX_BYTES:
        rows = int64_numbers(order.drop_null(), "index")
        if int(slot_lengths(values)[rows].sum(dtype=np.int64)) > MAX_BYTES:
            raise RowsTooLargeError


def _without_views(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The array with its views as plain values, because ``dictionary_decode`` does not take views."""
    kind = array.type.value_type
    if not is_view(kind):
        return array
    values = _from_views(array.dictionary, pa.string() if pt.is_string_view(kind) else pa.binary())
    return pa.DictionaryArray.from_arrays(array.indices, values)


@lru_cache(64)
def undecodable(kind: pa.DataType) -> Sequence[str]:
    """The parts whose layout Arrow cannot decode: some of its functions crash on them."""
    return list(_undecodable(kind, "", False))


def _undecodable(kind: pa.DataType, path: str, in_list: bool) -> Iterator[str]:
    """The problems of a type: run ends in lists and maps, and dictionaries and run ends of anything but single
    values."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _undecodable(kind.storage_type, path, in_list)
    elif pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        values, runs = kind.value_type, pt.is_run_end_encoded(kind)
        layered = pt.is_nested(values) or pt.is_dictionary(values) or pt.is_run_end_encoded(values)
        if layered or (runs and (in_list or is_view(values))):
            decode = "run_end_decode" if runs else "dictionary_decode"
            yield f"{path}: {kind} cannot be encoded: call {decode}".removeprefix(": ")
    elif is_any_list(kind):
        yield from _undecodable(kind.value_type, f"{path}[]", True)
    elif pt.is_map(kind):
        yield from _undecodable(kind.key_type, f"{path}.key", True)
        yield from _undecodable(kind.item_type, f"{path}.value", True)
    elif pt.is_struct(kind):
        for each in kind:
            yield from _undecodable(each.type, f"{path}.{each.name}".removeprefix("."), in_list)


def is_view(kind: pa.DataType) -> bool:
    return bool(pt.is_string_view(kind) or pt.is_binary_view(kind))


def view_lengths(array: pa.Array) -> Int32Array:
    """The length of each view, 0 where it is null."""
    if not len(array):
        return np.zeros(0, np.int32)
    lengths = np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)[::4]
    return np.where(null_mask(array), 0, lengths) if array.null_count else lengths


def is_any_list(kind: pa.DataType) -> bool:
    """Whether the type is a list of any layout; a map is not."""
    return bool(
        pt.is_list(kind)
        or pt.is_large_list(kind)
        or pt.is_fixed_size_list(kind)
        or pt.is_list_view(kind)
        or pt.is_large_list_view(kind)
    )


def list_elements(array: pa.Array) -> tuple[Int64Array, pa.Array]:
    """The number of elements per row (a null list has none), then all elements.

    Entries of maps are structs of ``key`` and ``value``.
    """
    kind = array.type
    if pt.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    lengths = pc.list_value_length(array)
    counts = raw_numbers(lengths, np.int64 if lengths.type == pa.int64() else np.int32).astype(np.int64)
    if lengths.null_count:
        counts[null_mask(lengths)] = 0
    # Respects slices, and leaves out the slots that a null list spans.
    return counts, array.flatten()


def byte_lengths(values: Sequence[bytes | None]) -> list[int]:
    """The bytes of each value, 0 where it is None."""
    if len(values) and values[0] is None and values.count(None) == len(values):
        return [0] * len(values)
    try:
        return [*map(len, values)]  # type: ignore[arg-type]
    except TypeError:
        return [0 if value is None else len(value) for value in values]


def bytes_column(values: Sequence[bytes | None], lengths: Sequence[int] | None = None) -> pa.BinaryArray:
    """A column with a slot per value. ``lengths``: ``byte_lengths(values)``. Raises ``RowsTooLargeError``."""
    missing, lengths = None, byte_lengths(values) if lengths is None else lengths
    try:
        data = b"".join(values)  # type: ignore[arg-type]
    except TypeError:
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
        values = [value or b"" for value in values]
        data = b"".join(values)  # type: ignore[arg-type]
    if len(data) > MAX_BYTES:
        raise RowsTooLargeError
    offsets = np.zeros(len(values) + 1, np.int32)
    # struct converts a list of ints in half of numpy's time
    np.cumsum(np.frombuffer(struct.pack(f"{len(lengths)}i", *lengths), np.int32), out=offsets[1:])
    return binary_array(offsets, data, missing)


def binary_array(offsets: Int32Array, data: object, missing: npt.NDArray[np.bool_] | None = None) -> pa.BinaryArray:
    """A column of ``len(offsets) - 1`` slots of the buffer ``data``, null where ``missing`` is true."""
    validity = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def without_nulls(array: pa.BinaryArray) -> pa.BinaryArray:
    """The same slots without nulls: a null slot becomes the bytes that its offsets span."""
    buffers = [None, *array.buffers()[1:]]
    return pa.BinaryArray.from_buffers(pa.binary(), len(array), buffers, null_count=0, offset=array.offset)


def int32_array(numbers: Int32Array) -> pa.Int32Array:
    """The same numbers as an Arrow array without nulls, not copied."""
    return pa.Int32Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)], null_count=0)


def slot_lengths(array: pa.BinaryArray) -> Int32Array:
    """The bytes of each slot, -1 where it is null (the offsets of a null slot may span bytes)."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array), np.int32)
    offsets = np.frombuffer(buffer, np.int32, len(array) + 1, 4 * array.offset)
    lengths = offsets[1:] - offsets[:-1]
    if array.null_count:
        lengths[null_mask(array)] = -1
    return lengths


def raw_numbers(array: pa.Array, kind: type[np.signedinteger]) -> npt.NDArray[np.signedinteger]:
    """A copy of a primitive array's values; a null slot holds any number."""
    count = array.offset + len(array)
    return np.frombuffer(array.buffers()[1], kind, count)[array.offset :].copy() if count else np.zeros(0, kind)


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True where a slot is null."""
    validity = array.buffers()[0]
    if validity is None:
        return np.zeros(len(array), np.bool_)
    end = array.offset + len(array)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=end)
    missing: npt.NDArray[np.bool_] = bits[array.offset : end] == 0
    return missing


def stable_order(numbers: Int32Array) -> npt.NDArray[np.intp]:
    """The order that sorts numbers from 0 on, stably."""
    # numpy sorts 16-bit integers by radix, wider ones several times slower
    narrow = numbers.astype(np.uint16) if int(numbers.max(initial=0)) < 1 << 16 else numbers
    return np.argsort(narrow, kind="stable")
