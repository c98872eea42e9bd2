"""Arrow arrays of any layout as an encoder reads them, and their types as messages name them."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.records.columns import Int64Array, binary_array, binary_column, is_any_list, is_view
from spark_kafka_sink.schemas.encoding.row_writer import Mask, RowWriter, mask_of

Missing: TypeAlias = npt.NDArray[np.bool_] | None

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Parts of a second, by Arrow's name of the unit."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """One type for all arrays of the same values, whatever their layout and time zone: small, without dictionaries.

    Lists of entries remain different from maps. Nullability and metadata are dropped.
    """
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if is_any_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    return kind


def refuse_repeated_keys(entries: RowWriter, path: str, counts: Int64Array, keys: pa.Array) -> None:
    """Refuses the maps, ``counts[i]`` of the ``entries`` each, that have a key twice."""
    again = _repeated_keys(counts, keys)
    entries.refuse(again, path, keys, "is twice in the map: a reader would keep one of them")


def _repeated_keys(counts: Int64Array, keys: pa.Array) -> npt.NDArray[np.bool_]:
    """True for each key that occurs earlier in the same map."""
    again = np.zeros(len(keys), np.bool_)
    if int(counts.max(initial=0)) < 2:
        return again
    codes = (binary_column(keys) if is_view(keys.type) else keys).dictionary_encode().indices  # views are not hashed
    maps = np.repeat(np.arange(len(counts)), counts)
    pairs = maps * len(keys) + integers(codes)
    order = np.argsort(pairs, kind="stable")
    ordered = pairs[order]
    again[order[1:][ordered[1:] == ordered[:-1]]] = True
    return again


def only(array: pa.Array, keep: Mask | None) -> pa.Array:
    """The array with nulls outside ``keep``, because the values of a refused row are still in it."""
    present = mask_of(array)
    if keep is None or (present is not None and not (present & ~keep).any()):
        return array
    dropped = pa.py_buffer(np.packbits(keep == 0, bitorder="little"))
    mask = pa.BooleanArray.from_buffers(pa.bool_(), len(array), [None, dropped])
    return pa.StructArray.from_arrays([array], ["kept"], mask=mask).flatten()[0]


def integers(array: pa.Array) -> Int64Array:
    """The numbers of integers, dates, times, timestamps and durations; a null slot has any number."""
    kind = array.type
    sign = "u" if pt.is_unsigned_integer(kind) else "i"
    return _numbers(array, np.dtype(f"{sign}{kind.bit_width // 8}")).astype(np.int64, copy=False)


def floats(array: pa.Array) -> npt.NDArray[np.generic]:
    """The floats in their own width; a null slot has any number."""
    return _numbers(array, np.dtype(f"f{array.type.bit_width // 8}"))


def spans(array: pa.Array, keep: Mask | None) -> tuple[pa.BinaryArray, Int64Array, Missing]:
    """Strings or bytes without validity, the length of each (0 outside ``keep``), and the rows outside ``keep``.

    The last is None if those rows have no bytes.
    """
    column = binary_column(array)
    _, offsets_buffer, data = column.buffers()
    if not len(column) or offsets_buffer is None:
        return binary_array(np.zeros(len(column) + 1, np.int32), b""), np.zeros(len(column), np.int64), None
    offsets = np.frombuffer(offsets_buffer, np.int32, len(column) + 1, 4 * column.offset)
    lengths = np.diff(offsets).astype(np.int64)
    missing = None
    if keep is not None:
        kept = lengths & keep.view(np.int64)
        if (kept != lengths).any():  # a null slot may span bytes
            missing = keep == 0
        lengths = kept
    return binary_array(offsets, data or b""), lengths, missing


def invalid_utf8(column: pa.BinaryArray, missing: Missing) -> Missing:
    """True for the slots that are not UTF-8; None if all slots are."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1)
    first, end = int(bounds[0]), int(bounds[-1])
    if int(np.frombuffer(data, np.uint8, end - first, first).max(initial=0)) < 0x80:
        return None
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        bad = np.fromiter((not _is_utf8(each) for each in column.to_pylist()), np.bool_, len(column))
        return bad if missing is None else bad & ~missing
    return None


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _numbers(array: pa.Array, kind: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return np.zeros(len(array), kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)


_SPARK_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "binary": "binary",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
    "time64[ns]": "time",
    "timestamp[us]": "timestamp_ntz",
}


def type_name(kind: pa.DataType) -> str:
    """The name that messages use: Spark's, such as ``array<bigint>``, or Arrow's for a type that Spark lacks."""
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return type_name(kind.value_type)
    if pt.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if pt.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if is_any_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pt.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind) and kind.tz and kind.unit == "us":
        return "timestamp"
    return _SPARK_NAMES.get(str(kind), str(kind))
