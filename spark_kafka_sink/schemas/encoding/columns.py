"""How Arrow columns are encoded: arrays of any layout as an encoder reads them, their types as messages name them, and
slices of 10,000 rows, as Spark's Arrow batches have by default; fewer where rows are large.

More rows would not fit the CPU's caches; fewer would cost more, because each slice takes 0.4 ms by itself. For the same
reason, the chunks of a slice are joined.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError, sanitize
from spark_kafka_sink.records.arrays import (
    MAX_BYTES,
    Int32Array,
    Int64Array,
    RowsTooLargeError,
    binary_array,
    binary_column,
    bytes_column,
    is_any_list,
    is_view,
    list_elements,
    null_mask,
    plain,
    undecodable,
    view_lengths,
)
from spark_kafka_sink.records.encode import RowJoin
from spark_kafka_sink.schemas.encoding.encoder import (
    Encoder,
    EncodingFault,
    Kernel,
    Mask,
    RowWriter,
    SchemaMismatchError,
    UnencodableRowsError,
    in_halves,
    mask_of,
)

Missing: TypeAlias = npt.NDArray[np.bool_] | None

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Parts of a second, by Arrow's name of the unit."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The same type for all arrays of the same values, in any layout and time zone: with small offsets, without
    dictionaries.

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
    if int(counts.max(initial=0)) < 2:
        return
    codes = (binary_column(keys) if is_view(keys.type) else keys).dictionary_encode().indices  # views are not hashed
    pairs = np.repeat(np.arange(len(counts)), counts) * len(keys) + integers(codes)
    order = np.argsort(pairs, kind="stable")
    ordered = pairs[order]
    again = np.zeros(len(keys), np.bool_)
    again[order[1:][ordered[1:] == ordered[:-1]]] = True
    entries.refuse(again, path, keys, "is twice in the map: a reader would keep one of them")


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

    The third is None if the rows outside ``keep`` have no bytes.
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
        bad = np.fromiter((not _is_utf8(value) for value in column.to_pylist()), np.bool_, len(column))
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
    "binary": "binary",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
    "time64[ns]": "time",
    "timestamp[us]": "timestamp_ntz",
}


def type_name(kind: pa.DataType) -> str:
    """The name that messages use: Spark's, such as ``array<bigint>``, or Arrow's for a type that Spark lacks."""
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
    return _SPARK_NAMES.get(str(plain_type(kind)), str(kind))


_SLICE_ROWS: Final = 10_000
_SLICE_BYTES: Final = 64 << 20
_SLOT_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class KernelEncoder:
    """An ``Encoder`` of columns of one Arrow type. Its pickle needs neither the schema nor its library."""

    kind: pa.DataType
    root: Kernel

    def encode(
        self,
        array: pa.Array | pa.ChunkedArray,
        prefix: bytes = b"",
        faults: list[EncodingFault] | None = None,
        most: int = MAX_BYTES,
    ) -> pa.BinaryArray:
        """Implements ``Encoder``, and also takes chunked arrays. Raises ``SchemaMismatchError`` for layouts that Arrow
        cannot decode.
        """
        if array.type != self.kind and plain_type(array.type) != plain_type(self.kind):
            raise InvalidRecordError(
                sanitize(
                    f"the encoder was planned for {type_name(self.kind)}, but the column is {type_name(array.type)}"
                )
            )
        if problems := undecodable(array.type):
            raise SchemaMismatchError(problems)
        encoded: list[pa.BinaryArray] = []
        found: list[EncodingFault] = []
        row = size = 0
        for rows in _slices(array):
            for values, new in in_halves(lambda part: self._encode(part, prefix), rows, row):
                encoded.append(values)
                found += [fault._replace(row=row + fault.row) for fault in new] if row else new
                row += len(values)
                size += values.nbytes
                if size > most and row > 1:
                    raise RowsTooLargeError
        add_faults(found, faults)
        if len(encoded) == 1:
            return encoded[0]
        return pa.concat_arrays(encoded) if encoded else binary_array(np.zeros(1, np.int32), b"")

    def _encode(self, rows: pa.Array, prefix: bytes) -> tuple[pa.BinaryArray, list[EncodingFault]]:
        """The values of a slice, null where a row is null or has a fault, and the faults."""
        try:
            return self._written(rows, prefix)
        except RowsTooLargeError:
            if len(rows) != 1:
                raise
            return bytes_column([None]), [EncodingFault(0, "", "the encoded row would take more than 2 GiB")]

    def _written(self, rows: pa.Array, prefix: bytes) -> tuple[pa.BinaryArray, list[EncodingFault]]:
        size = _bytes(rows)
        if size > MAX_BYTES or (size > _SLICE_BYTES and len(rows) > 1):
            raise RowsTooLargeError
        values = plain(rows)
        keep = mask_of(values)
        writer = RowWriter(len(values))
        writer.fixed(prefix, keep)
        self.root.write(writer, values, keep)
        if writer.faults:
            keep = _without(keep, writer)
        starts, data = writer.finish()
        return binary_array(starts, data, None if keep is None else keep == 0), sorted(writer.faults.values())


def add_faults(found: list[EncodingFault], faults: list[EncodingFault] | None) -> None:
    """Adds the faults found to ``faults``. If that is None, raises ``UnencodableRowsError`` for them."""
    if faults is not None:
        faults += found
    elif found:
        raise UnencodableRowsError(found)


class PlainEncoder:
    """An ``Encoder`` of strings and bytes, which need no encoding: it only puts the prefix in front."""

    def encode(
        self, array: pa.Array, prefix: bytes = b"", faults: list[EncodingFault] | None = None, most: int = MAX_BYTES
    ) -> pa.BinaryArray:
        values = binary_column(array)
        return prefixed(values, [prefix]) if prefix else values


@dataclass(frozen=True, slots=True)
class ZlibEncoder:
    """An ``Encoder`` that compresses ``start`` and each value of another, behind the prefix."""

    encoder: Encoder
    start: bytes

    def encode(
        self, array: pa.Array, prefix: bytes = b"", faults: list[EncodingFault] | None = None, most: int = MAX_BYTES
    ) -> pa.BinaryArray:
        values = self.encoder.encode(array, self.start, faults, most).to_pylist()
        return bytes_column([None if value is None else prefix + zlib.compress(value) for value in values])


def prefixed(values: pa.BinaryArray, prefixes: Sequence[bytes], codes: Int32Array | None = None) -> pa.BinaryArray:
    """``prefixes[codes[row]]`` and the value of each row, null where the value is null. ``codes``: None for one
    prefix."""
    order = np.zeros(len(values), np.int32) if codes is None else codes
    missing = null_mask(values) if values.null_count else None
    if missing is not None:
        order = np.where(missing, np.int32(len(prefixes)), order)
    join = RowJoin(len(values), values.nbytes + len(values) * max(map(len, prefixes)))
    join.column(bytes_column([*prefixes, b""]), order)
    join.column(values)
    data, starts = join.finish()
    return binary_array(np.ascontiguousarray(starts), data, missing)


def _without(keep: Mask | None, writer: RowWriter) -> Mask:
    """The rows of ``keep`` that have no fault."""
    mask = np.full(writer.rows, -1, np.int64).view(np.uint64) if keep is None else keep.copy()
    mask[list(writer.faults)] = 0
    return mask


def _slices(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    for start in range(0, len(array), _SLICE_ROWS):
        rows = array.slice(start, _SLICE_ROWS)
        yield from _join(rows) if isinstance(rows, pa.ChunkedArray) else [rows]


def _join(rows: pa.ChunkedArray) -> list[pa.Array]:
    # What the buffers hold is an upper bound of the bytes that takes a tenth of the time.
    is_large = rows.get_total_buffer_size() > _SLICE_BYTES and sum(map(_bytes, rows.chunks)) > _SLICE_BYTES
    if rows.num_chunks == 1 or is_large:
        return list(rows.chunks)
    try:
        return [pa.concat_arrays(rows.chunks)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a dictionary has more values than its indexes can number
        return list(rows.chunks)


def _bytes(array: pa.Array) -> int:
    """Estimates the bytes of the values, including the bytes of strings and of the elements of lists."""
    kind = array.type
    if pt.is_struct(kind):
        return sum(_bytes(child) for child in array.flatten())
    if is_any_list(kind) or pt.is_map(kind):
        return _bytes(list_elements(array)[1])
    if pt.is_dictionary(kind):
        return len(array) * _largest(array.dictionary)
    if pt.is_run_end_encoded(kind):
        return _bytes(plain(array))
    if is_view(kind):  # their buffers may belong to other arrays, too
        return int(view_lengths(array).sum(dtype=np.int64))
    return max(len(array), int(array.nbytes))


def _largest(values: pa.Array) -> int:
    """The bytes of the largest value, if the values are strings."""
    kind = values.type
    if is_view(kind):
        return int(view_lengths(values).max(initial=0))
    if plain_type(kind) in (pa.string(), pa.binary()) and not pt.is_fixed_size_binary(kind):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return _SLOT_BYTES
