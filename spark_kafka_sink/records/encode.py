"""Columns → records of a record batch v2 (Java: ``DefaultRecord.writeTo``), all rows at once. ``cut_records`` cuts
encoded records into the parts of a split batch.

For example, the record with key ``k``, value ``hi``, no headers and offset delta 1, written 3 ms after the batch's base
timestamp, is ``12 00 06 02 02 6b 04 68 69 00``: its length (9), attributes, timestamp delta, offset delta, key with its
length, value with its length, number of headers. All numbers but the attributes are varints (``varints.py``).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrays import (
    MAX_BYTES,
    Int32Array,
    Int64Array,
    Integers,
    Order,
    RowsTooLargeError,
    binary_array,
    binary_column,
    bytes_column,
    int32_array,
    is_any_list,
    list_elements,
    null_mask,
    one_array,
    slot_lengths,
    without_nulls,
)
from spark_kafka_sink.records.batch import NO_ATTRIBUTES, NO_HEADERS, NULL
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.sizes import FieldLengths
from spark_kafka_sink.records.varint_columns import TABLE, TABLE_END, bounds, encode_zigzagged, varint_sizes, zigzag
from spark_kafka_sink.records.varints import cached_varint, encode_varint

Views: TypeAlias = npt.NDArray[np.void]

INLINE_BYTES = 12
VIEW = np.dtype("V16")
_LENGTH_BYTES = 4


# Arrow's binary views, made with numpy: slots in any order that are copied once, into one buffer of their size. A view
# is 16 bytes: an int32 length, then up to 12 bytes of data, or (here) 4 unused ones, the number of a buffer and the
# position in it.


def slot_views(array: pa.BinaryArray, order: Order, buffer: int) -> Views:
    """Slot ``order[i]`` of ``array``, without nulls. ``buffer``: the number under which ``join`` gets its data."""
    bounds = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    starts = bounds[order]
    lengths = bounds[order + 1] - starts
    if int(lengths.max(initial=0)) <= INLINE_BYTES:
        return _inline(array, bounds, starts, lengths)
    fields = np.empty((len(order), 2), np.uint64)
    fields[:, 1] = starts
    fields[:, 1] <<= np.uint64(32)
    fields[:, 1] |= np.uint64(buffer)
    views: Views = fields.view(VIEW)[:, 0]
    _set_lengths(views, lengths)
    short = np.flatnonzero(lengths <= INLINE_BYTES)
    if len(short):
        few = array.take(int32_array(order[short].astype(np.int32)))
        views[short] = slot_views(few, np.arange(len(few)), buffer)
    return views


def join(views: Views, buffers: Sequence[pa.Buffer]) -> pa.BinaryArray:
    """The views as slots of one new buffer: at most 2 GiB (beyond that, the cast lets its offsets wrap)."""
    laid_out = [None, pa.py_buffer(views.view(np.uint8)), *buffers]
    return pa.Array.from_buffers(pa.binary_view(), len(views), laid_out, null_count=0).cast(pa.binary())


def _inline(array: pa.BinaryArray, bounds: Int32Array, starts: Int32Array, lengths: Int32Array) -> Views:
    """Views of slots of at most ``INLINE_BYTES`` each; the bytes behind a slot are arbitrary."""
    first, end = int(bounds[0]), int(bounds[-1])
    data = np.zeros(_LENGTH_BYTES + end - first + INLINE_BYTES, np.uint8)
    if end > first:
        data[_LENGTH_BYTES:-INLINE_BYTES] = np.frombuffer(array.buffers()[2], np.uint8, end - first, first)
    # 16 bytes are read from each place: the length overwrites the 4 in front of the slot.
    places: Views = np.ndarray((len(data) - VIEW.itemsize + 1,), VIEW, data, strides=(1,))
    views = places[starts.astype(np.int64) - first]
    _set_lengths(views, lengths)
    return views


def _set_lengths(views: Views, lengths: Integers) -> None:
    views.view(np.int32).reshape(-1, 4)[:, 0] = lengths


NULL_HEADER = "Invalid null header key found in headers"
"""Java's text (``DefaultRecord``) for a header without a key."""

_MAX_SHARED_NAMES = 8
"""The most header names of a row with pieces of their own. More pieces take longer than headers that are joined one by
one."""

_EMPTY = bytes_column([b""])
_LARGE_ROW = 256
_MAX_LENGTH_BYTES = 5
"""The most bytes of a length's varint."""
_MAX_PREFIX = INLINE_BYTES - len(encode_varint(TABLE_END))
"""The longest prefix that leaves room for a varint of the table in the 12 bytes of a view."""


class EncodedRecords(NamedTuple):
    """``n`` encoded rows: row ``i`` is ``data[starts[i]:starts[i + 1]]``.

    ``data`` has format ``B``; ``starts`` holds ``n + 1`` int32 boundaries. A slice of ``data`` keeps the whole buffer.
    """

    data: memoryview
    starts: memoryview


def encode_records(
    columns: RecordColumns,
    offset_deltas: npt.NDArray[np.integer],
    timestamp_deltas: Int64Array | int,
    order: Order | None = None,
    lengths: FieldLengths | None = None,
) -> EncodedRecords:
    """Encodes records into one buffer, each with its length varint, ready to follow a batch header.

    Record ``i`` is row ``order[i]`` of ``columns`` (default: row ``i``; it may lack rows) with ``offset_deltas[i]`` and
    ``timestamp_deltas[i]`` (ms; an int holds for all). ``columns.timestamps`` is ignored: deltas count from the batch's
    base timestamp. ``lengths``: ``FieldLengths.of(columns)`` if the caller has them. Raises ``RowsTooLargeError``.
    """
    offsets = offset_deltas.astype(np.int64, copy=False)
    lengths = lengths or FieldLengths.of(columns)
    # Rows that ``order`` lacks count too: joining small rows copies whole columns.
    left_out = 0 if order is None or len(order) == len(columns) else int(lengths.payload.sum())
    bodies = varint_sizes(offsets)
    bodies += lengths.payload if order is None else lengths.payload[order]
    bodies += len(NO_ATTRIBUTES)
    size = int(bodies.sum()) + _MAX_LENGTH_BYTES * len(offsets)
    join = RowJoin(len(offsets), max(size, min(left_out, MAX_BYTES)))
    if isinstance(timestamp_deltas, int):
        timestamp = encode_varint(timestamp_deltas)
        join.varints(bodies + len(timestamp))
        join.fixed(NO_ATTRIBUTES + timestamp)
    else:
        join.varints(bodies + varint_sizes(timestamp_deltas))
        join.fixed(NO_ATTRIBUTES)
        join.varints(timestamp_deltas)
    join.varints(offsets)
    for each, column in ((lengths.key, columns.key), (lengths.value, columns.value)):
        if column is None or each is None:
            join.fixed(NULL)
        else:
            join.varints(each, order)
            join.column(column, order)
    if columns.headers is None:
        join.fixed(NO_HEADERS)
    else:
        join.column(columns.headers, order)
    return join.finish()


def header_section(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """The encoded headers of one record: their count, then each key and value with its length."""
    section = bytearray(encode_varint(len(headers)))
    for key, value in headers:
        section += encode_varint(len(key)) + key
        section += NULL if value is None else encode_varint(len(value)) + value
    return bytes(section)


def header_column(array: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """list<struct<key, value>> or map<string, …> → an encoded header section per row, never null.

    Keys and values are of any string or binary type. A null list means no headers; a header's value may be null.
    Raises ``InvalidRecordError`` with the row of a null header key, and ``RowsTooLargeError``.
    """
    counts, keys, values = header_entries(array)
    if keys.nbytes + values.nbytes + 2 * _MAX_LENGTH_BYTES * len(keys) > MAX_BYTES:
        raise RowsTooLargeError(f"The headers of these {len(counts)} rows exceed 2 GiB: write fewer rows at once.")
    if keys.null_count:
        header = int(np.argmax(null_mask(keys)))
        row = int(np.searchsorted(np.cumsum(counts), header, side="right"))
        raise InvalidRecordError(NULL_HEADER, row)
    names = _shared_names(counts, keys)
    if names:
        data, starts = _sections(names, values)
        return binary_array(np.ascontiguousarray(starts), data)
    join = RowJoin(len(keys))
    for column in (keys, values):
        join.varints(slot_lengths(column))
        join.column(column)
    data, starts = join.finish()
    ends = np.concatenate(([0], np.cumsum(counts)))
    sections = RowJoin(len(counts))
    sections.varints(counts)
    sections.column(binary_array(np.asarray(starts)[ends], data))
    data, starts = sections.finish()
    return binary_array(np.ascontiguousarray(starts), data)


def _shared_names(counts: Int64Array, keys: pa.BinaryArray) -> list[bytes]:
    """The header names of every row; empty if rows have different ones, or too many to gain from ``_sections``."""
    width = int(counts[0]) if len(counts) else 0
    if not 0 < width <= _MAX_SHARED_NAMES or (counts != width).any():
        return []
    lengths = slot_lengths(keys).reshape(-1, width)
    if (lengths != lengths[0]).any():
        return []
    size = int(lengths[0].sum())
    if size:
        _, offsets, data = keys.buffers()
        first = int(np.frombuffer(offsets, np.int32, 1, 4 * keys.offset)[0])
        rows = np.frombuffer(data, np.uint8, len(counts) * size, first).reshape(-1, size)
        if (rows != rows[0]).any():
            return []
    names: list[bytes] = keys[:width].to_pylist()
    return names


def _sections(names: Sequence[bytes], values: pa.BinaryArray) -> EncodedRecords:
    """The header sections of rows with the same names: one join, with three pieces a header."""
    width = len(names)
    join = RowJoin(len(values) // width)
    join.fixed(encode_varint(width))
    lengths = slot_lengths(values)
    nulls = null_mask(values) if values.null_count else None
    values = without_nulls(values)
    for place, name in enumerate(names):
        join.fixed(encode_varint(len(name)) + name)
        join.end_fixed()
        join.varints(lengths[place::width])
        slots = np.arange(place, len(values), width, dtype=np.int32)
        join.slots(values, slots, None if nulls is None else nulls[place::width])
    return join.finish()


def header_entries(array: pa.Array | pa.ChunkedArray) -> tuple[Int64Array, pa.BinaryArray, pa.BinaryArray]:
    """The number of headers per row, then the keys and the values of all headers, without the entries under a null
    list.

    ``array``: as for ``header_column``.
    """
    array = one_array(array)
    kind = array.type
    if pt.is_null(kind) or (pt.is_list(kind) and pt.is_null(kind.value_type)):
        array = array.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())])))
    elif not (pt.is_map(kind) or (is_any_list(kind) and pt.is_struct(kind.value_type))):
        raise InvalidRecordError(
            f"cannot write a column of type {kind} as headers: it must be array<struct<key:string,value:binary>> or map"
        )
    counts, entries = list_elements(array)
    names = [entries.type.field(index).name for index in range(entries.type.num_fields)]
    if sorted(names) != ["key", "value"]:
        raise InvalidRecordError(f"a header must be a struct of key and value, not of {', '.join(names)}")
    fields = dict(zip(names, entries.flatten(), strict=True))
    return counts, binary_column(fields["key"]), binary_column(fields["value"])


class _SlotPiece(NamedTuple):
    """One slot of ``source`` per row, or one for all rows.

    If ``source`` is None, ``slots`` are numbers from ``least`` to ``most``, whose varints come from the table, each
    with ``prefix`` in front. Numbers from ``TABLE_END`` on are slots of ``overflow``, which has the varints that are
    not in the table.
    """

    source: pa.BinaryArray | None
    slots: Order | int
    nulls: npt.NDArray[np.bool_] | None = None
    least: int = 0
    most: int = 0
    prefix: bytes = b""
    overflow: pa.BinaryArray | None = None

    def array(self) -> pa.BinaryArray:
        """The slots from ``least`` on."""
        if self.source is not None:
            return self.source
        table = _varints_behind(self.prefix)[TABLE_END + self.least : TABLE_END + self.most + 1]
        return table if self.overflow is None else pa.concat_arrays([table, self.overflow])

    def views(self, buffers: list[pa.Buffer]) -> Views:
        """The views of the slots, one per row or one for all. The data that they point to is added to ``buffers``."""
        if self.source is None and self.overflow is None:
            views: Views = _varint_views_behind(self.prefix)[TABLE_END + self.slots]
            return views
        # An int is one slot, unless it is null in some rows.
        given = self.slots if self.nulls is None else np.broadcast_to(self.slots, len(self.nulls))
        slots: Int64Array = np.atleast_1d(given).astype(np.int64, copy=False)
        if self.source is not None:
            buffers.append(self.source.buffers()[2] or _EMPTY.buffers()[2])
            views = slot_views(self.source, slots, len(buffers) - 1)
            if self.nulls is not None:
                views[self.nulls] = np.zeros((), VIEW)
            return views
        views = _varint_views_behind(self.prefix)[TABLE_END + np.minimum(slots, TABLE_END - 1)]
        large = np.flatnonzero(slots >= TABLE_END)
        views[large] = slot_views(self.overflow, slots[large] - TABLE_END, 0)
        return views


@dataclass(slots=True, eq=False)
class RowJoin:
    """Joins pieces row by row into one buffer (ARCHITECTURE, "The hot path"). ``size``: an upper bound of the bytes of
    all rows.

    Add the pieces in their order within a row, then call ``finish``. A piece costs about 4 ns per row, however short:
    So bytes that are the same in every row become a prefix of the next varint, if necessary of the first varint of the
    next row. For example, of the pieces varint, fixed ``00``, varint, column, fixed ``00`` only three are left: the
    first varint with the prefix ``00`` carried from the row before, the second one with the prefix ``00``, and the
    column.
    """

    _rows: int
    _size: int = 0
    _pieces: list[_SlotPiece] = field(default_factory=list)
    _fixed: bytes = b""

    def fixed(self, data: bytes) -> None:
        """Adds the same bytes in every row."""
        self._fixed += data

    def varints(self, values: Integers, order: Order | None = None) -> None:
        """Adds the varint of ``values[order[i]]`` to row ``i`` (default: of value ``i``)."""
        least, most = bounds(values)
        if len(self._fixed) > _MAX_PREFIX:
            self.end_fixed()
        in_table = least >= -TABLE_END and most < TABLE_END
        if order is not None and not (in_table and least == most):
            values = values[order]
        if in_table:
            prefix, self._fixed = self._fixed, b""
            self._pieces.append(_SlotPiece(None, least if least == most else values, None, least, most, prefix))
            return
        # Only the large values are encoded here; the others still come from the table.
        self.end_fixed()
        large = np.flatnonzero((values < -TABLE_END) | (values >= TABLE_END))
        slots = values.astype(np.int32)
        slots[large] = np.arange(TABLE_END, TABLE_END + len(large))
        overflow = encode_zigzagged(zigzag(values[large]))
        self._pieces.append(_SlotPiece(None, slots, None, -TABLE_END, TABLE_END - 1, overflow=overflow))

    def column(self, array: pa.BinaryArray, order: Order | None = None) -> None:
        """Adds slot ``order[i]`` of ``array`` to row ``i`` (default: slot ``i``), no bytes where it is null."""
        slots = np.arange(self._rows, dtype=np.int32) if order is None else order
        if not array.null_count:
            self.slots(array, slots)
            return
        nulls = null_mask(array)
        self.slots(without_nulls(array), slots, nulls if order is None else nulls[order])

    def slots(self, source: pa.BinaryArray, slots: Order | int, missing: npt.NDArray[np.bool_] | None = None) -> None:
        """Adds slot ``slots[i]`` of ``source``, which has no nulls, to row ``i``, no bytes where ``missing[i]``."""
        self.end_fixed()
        self._pieces.append(_SlotPiece(source, slots, missing))

    def finish(self) -> EncodedRecords:
        """Joins the pieces. Raises ``RowsTooLargeError``."""
        if self._size > MAX_BYTES:
            raise RowsTooLargeError
        if not self._rows:
            return EncodedRecords(memoryview(b""), np.zeros(1, np.int32).data)
        carried = self._carry_over()
        large = self._size > _LARGE_ROW * self._rows
        joined = self._copy_once(carried) if large else self._take(carried)
        _, offsets, data = joined.buffers()
        starts = np.frombuffer(offsets, np.int32, len(joined))[:: len(self._pieces)]
        # Row 0 begins with bytes carried from no row; the last row's carried bytes follow it.
        first = len(carried)
        return EncodedRecords(memoryview(data).cast("B")[first : first + int(starts[-1])], starts.data)

    def _take(self, carried: bytes) -> pa.BinaryArray:
        """Joins the pieces by one ``take`` from one array of all sources. This is the fastest way for small rows, but
        it copies each byte twice, and a third time while its result grows.
        """
        width = len(self._pieces)
        sources = [_EMPTY]
        first_slots: dict[int, int] = {}  # by the source's id: the values of all headers are one source
        next_slot = 1
        picks = np.empty(self._rows * width + 1, np.int32)
        rows = picks[:-1].reshape(self._rows, width)
        for index, piece in enumerate(self._pieces):
            source = piece.array()
            first_slot = first_slots.setdefault(id(source), next_slot)
            rows[:, index] = piece.slots + (first_slot - piece.least)
            if piece.nulls is not None:
                rows[piece.nulls, index] = 0  # which is empty
            if first_slot == next_slot:
                sources.append(source)
                next_slot += len(source)
        sources.append(bytes_column([carried]))
        picks[-1] = next_slot
        return pc.take(pa.concat_arrays(sources), int32_array(picks), boundscheck=False)

    def _copy_once(self, carried: bytes) -> pa.BinaryArray:
        """Joins the pieces by views, which copies each byte once, and takes 10 ns more per piece."""
        width = len(self._pieces)
        views = np.empty(self._rows * width + 1, VIEW)
        rows = views[:-1].reshape(self._rows, width)
        buffers: list[pa.Buffer] = []
        for index, piece in enumerate(self._pieces):
            rows[:, index] = piece.views(buffers)
        views[-1:] = slot_views(bytes_column([carried]), np.zeros(1, np.int64), 0)
        return join(views, buffers)

    def end_fixed(self) -> None:
        """Makes a piece of fixed bytes that no varint follows, and of long ones, because each prefix of varints has a
        table."""
        if self._fixed:
            self._pieces.append(_SlotPiece(bytes_column([self._fixed]), 0))
            self._fixed = b""

    def _carry_over(self) -> bytes:
        """The row's last fixed bytes, if they go in front of the first varint of the next row."""
        first = self._pieces[0] if self._pieces else None
        if (
            first is None
            or first.source is not None
            or first.overflow is not None
            or len(self._fixed) + len(first.prefix) > _MAX_PREFIX
        ):
            self.end_fixed()
        elif self._fixed:
            self._pieces[0] = first._replace(prefix=self._fixed + first.prefix)
        return self._fixed


@lru_cache(64)
def _varints_behind(data: bytes) -> pa.BinaryArray:
    """The table of varints with ``data`` in front of each; copied out of Arrow's pool, where it would look leaked."""
    if not data:
        return TABLE
    before, nothing = bytes_column([data, b""])  # scalars: Arrow imports pandas to make them of Python's bytes
    joined = pc.binary_join_element_wise(before, TABLE, nothing)
    _, offsets, joined_data = joined.buffers()
    return binary_array(np.frombuffer(offsets, np.int32, len(joined) + 1).copy(), joined_data.to_pybytes())


@lru_cache(16)
def _varint_views_behind(data: bytes) -> Views:
    return slot_views(_varints_behind(data), np.arange(2 * TABLE_END), 0)


class RecordsPart(NamedTuple):
    """A part of a batch: ``rows`` encoded records. ``latest``: their largest timestamp delta, ms."""

    records: bytes
    rows: int
    latest: int


def cut_records(records: bytes, most: int, alone: Container[int] = ()) -> list[RecordsPart]:
    """Cuts encoded records into parts of at most ``most`` bytes, or of one record. Each record with an index in
    ``alone`` is a part of its own. Timestamp deltas stay, offset deltas begin at 0 in each part.

    The deltas are rewritten because brokers accept uncompressed batches with any offset deltas, and would serve wrong
    offsets.
    """
    parts: list[RecordsPart] = []
    chunks: list[bytes] = []
    start = size = count = latest = index = 0
    while start < len(records):
        length, start = _number(records, start)
        end = start + length
        timestamp, after_timestamp = _number(records, start + 1)  # behind the attributes
        _, after_offset = _number(records, after_timestamp)
        fixed = length - (after_offset - after_timestamp)
        offset = cached_varint(count)
        total = fixed + len(offset)
        is_cut = index in alone or index - 1 in alone
        if count and (is_cut or size + total + len(cached_varint(total)) > most):
            parts.append(RecordsPart(b"".join(chunks), count, latest))
            chunks, size, count, offset = [], 0, 0, cached_varint(0)
            total = fixed + len(offset)
        chunks += (cached_varint(total), records[start:after_timestamp], offset, records[after_offset:end])
        size += total + len(cached_varint(total))
        latest = max(latest, timestamp) if count else timestamp
        count += 1
        index += 1
        start = end
    parts.append(RecordsPart(b"".join(chunks), count, latest))
    return parts


def _number(data: bytes, start: int) -> tuple[int, int]:
    """The zigzag varint at ``start``, and where it ends."""
    byte = data[start]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), start + 1
    number, shift = byte & 0x7F, 7
    while True:
        start += 1
        byte = data[start]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), start + 1
        shift += 7
