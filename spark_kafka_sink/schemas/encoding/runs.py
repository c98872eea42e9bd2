"""Runs: neighbouring fields of one kind, which are encoded together as a matrix of rows and fields.

A call of numpy costs as much as 2,000 numbers, so wide rows cannot afford calls for each column of a few thousand rows.
A run takes a block of rows of all its columns, and every call works on the whole block. For example, four Protobuf
fields int64 with the numbers 1 to 4 are the values [1, 2, 3, 4] and [5, 300, 7, 0] in two rows. Heads (tags) and
varints become words: 08 01, 10 02, 18 03, 20 04 in row 0; 08 05, 10 ac 02, 18 07, and nothing for the 0 in row 1. The
words' lengths, 2 2 2 2 and 2 3 2 0 bytes, are cumulated to places, at which all words are added into zeros by two
calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.records.arrays import (
    Int32Array,
    Int64Array,
    RowsTooLargeError,
    binary_array,
    binary_column,
    int32_array,
    plain,
)
from spark_kafka_sink.schemas.encoding.columns import integers, invalid_utf8
from spark_kafka_sink.schemas.encoding.encoder import (
    WORD_BITS,
    WORD_BYTES,
    Kernel,
    Mask,
    RowWriter,
    Words,
    bits_of,
    varints,
)

_MIN_FIELDS: Final = 4
"""The fewest fields of a run: fewer fields are as fast one after the other."""
_BLOCK_VALUES: Final = 1 << 15
"""The number of values of a block: few enough that its arrays stay in the CPU's cache, and so many that a call costs
little per value."""
_GATHERED_VALUES: Final = 1 << 18
_TEXT_VALUES: Final = 1 << 16
_TEXT_BYTES: Final = 4 << 20
_MAX_HEAD: Final = 5

Places: TypeAlias = npt.NDArray[np.intp]


class RunKind(NamedTuple):
    """The common properties of a run's fields.

    ``zigzag``: whether numbers, or the lengths of bytes, are signed varints. ``presence``: whether 0, or no bytes, are
    written. ``not_utf8``: why bytes that are not UTF-8 are refused, empty if they are not; None for a run of integers.
    """

    zigzag: bool
    presence: bool = True
    not_utf8: str | None = None


class RunField(NamedTuple):
    """A field of a run. ``head``: the bytes in front of a value. ``null``: the bytes in place of a null.

    ``refusal``: why a null is refused; empty if it is not.
    """

    path: str
    head: bytes
    null: bytes = b""
    refusal: str = ""


class PlannedField(NamedTuple):
    """A field before runs are found. ``place``: its column in the struct, or -1. ``kind``: None if it fits no run."""

    place: int
    kernel: Kernel
    kind: RunKind | None = None
    run_field: RunField | None = None


class FieldKernel(Protocol):
    """Writes a field of a struct, or a run of them."""

    def write_fields(self, writer: RowWriter, struct: pa.Array, columns: Sequence[pa.Array], keep: Mask | None) -> None:
        """Writes its part of ``columns``, the columns of ``struct``, in each row of ``keep``."""


@dataclass(frozen=True, slots=True)
class SingleField:
    """One field. ``place``: its column in the struct, -1 if the struct has none."""

    place: int
    kernel: Kernel

    def write_fields(self, writer: RowWriter, struct: pa.Array, columns: Sequence[pa.Array], keep: Mask | None) -> None:
        self.kernel.write(writer, struct if self.place < 0 else columns[self.place], keep)


def with_runs(fields: Iterable[PlannedField]) -> tuple[FieldKernel, ...]:
    """The kernels of a struct's fields, in their order."""
    kernels: list[FieldKernel] = []
    for kind, neighbours in groupby(fields, _kind):
        group = list(neighbours)
        if kind is None or len(group) < _MIN_FIELDS:
            kernels += [SingleField(field.place, field.kernel) for field in group]
        else:
            members = tuple(field.run_field for field in group if field.run_field is not None)
            kernels.append(FieldRun(kind, tuple(field.place for field in group), members))
    return tuple(kernels)


def _kind(field: PlannedField) -> RunKind | None:
    each = field.run_field
    fits = each is not None and len(each.head) <= _MAX_HEAD and len(each.null) <= 1
    return field.kind if fits else None


@dataclass(frozen=True, slots=True)
class FieldRun:
    """A run: fields of one kind. ``places``: the column of each."""

    kind: RunKind
    places: tuple[int, ...]
    fields: tuple[RunField, ...]

    def write_fields(self, writer: RowWriter, struct: pa.Array, columns: Sequence[pa.Array], keep: Mask | None) -> None:
        arrays = [plain(columns[place]) for place in self.places]
        present = _present(arrays, writer.rows)
        write = self._write_integers if self.kind.not_utf8 is None else self._write_bytes
        encoded, invalid = write(arrays, present, writer)
        for index, (field, array) in enumerate(zip(self.fields, arrays, strict=True)):
            if field.refusal and array.null_count:
                writer.refuse(bits_of(array, 0) == 0, field.path, array, field.refusal, keep)
            if invalid is not None:
                bad = invalid[index] if present is None else invalid[index] & (present[index] != 0)
                writer.refuse(bad, field.path, binary_column(array), self.kind.not_utf8 or "", keep)
        writer.column(encoded.array(), None if keep is None else keep == 0)

    def _write_integers(self, arrays: list[pa.Array], present: _Present, writer: RowWriter) -> tuple[_Rows, None]:
        columns = [integers(array) for array in arrays]
        heads = _Heads.of(self.fields, self.kind)
        encoded = _Rows(writer.limit)
        for numbers, kept in _by_row(columns, present, writer.rows):
            laid = heads.laid_out(numbers, kept)
            encoded.add(laid.row_ends, laid.data)
        return encoded, None

    def _write_bytes(
        self, arrays: list[pa.Array], present: _Present, writer: RowWriter
    ) -> tuple[_Rows, npt.NDArray[np.bool_] | None]:
        """The encoded rows, and where a value is not UTF-8, per field and row (None if all are)."""
        columns = [binary_column(array) for array in arrays]
        heads = _Heads.of(self.fields, self.kind)
        encoded, rows = _Rows(writer.limit), writer.rows
        invalid = None
        row_size = sum(column.nbytes for column in columns) // max(1, rows)
        for block in _blocks(rows, min(_TEXT_VALUES // len(columns), _TEXT_BYTES // max(1, row_size))):
            source, lengths = _source(columns, block)
            bad = invalid_utf8(source, None) if self.kind.not_utf8 else None
            if bad is not None:
                invalid = np.zeros((len(columns), rows), np.bool_) if invalid is None else invalid
                invalid[:, block] = bad.reshape(lengths.shape)
            by_row = lengths.T.astype(np.int64, order="C")
            encoded.add(*_interleave(heads.laid_out(by_row, _present_places(present, block)), by_row, source))
        return encoded, invalid


_Present = npt.NDArray[np.uint8] | None
"""An array of fields and rows, 0 where a value is null; None if no value is null."""


def _present(arrays: list[pa.Array], rows: int) -> _Present:
    if not any(array.null_count for array in arrays):
        return None
    present = np.ones((len(arrays), rows), np.uint8)
    for index, array in enumerate(arrays):
        if array.null_count:
            present[index] = bits_of(array, 0)
    return present


def _by_row(columns: list[Int64Array], present: _Present, rows: int) -> Iterator[tuple[Int64Array, _Kept]]:
    """The numbers, and which are not null, by row and field, block by block.

    More rows are gathered at once than a block has, because each column costs two calls.
    """
    for gathered in _blocks(rows, _GATHERED_VALUES // len(columns)):
        numbers = np.concatenate([column[gathered] for column in columns]).reshape(len(columns), -1).T.copy(order="C")
        for block in _blocks(len(numbers), _BLOCK_VALUES // len(columns)):
            part = slice(gathered.start + block.start, gathered.start + block.stop)
            yield numbers[block], _present_places(present, part)


def _blocks(rows: int, step: int) -> Iterator[slice]:
    """Slices of an odd number of rows each: with a power of two, the columns of a row would share places of the CPU's
    cache."""
    step = max(1, step) | 1
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


_Kept = npt.NDArray[np.bool_] | None
"""An array of rows and fields, False where a value is null; None if no value is null."""


def _present_places(present: _Present, block: slice) -> _Kept:
    return None if present is None else present[:, block].T.copy(order="C").view(np.bool_)


class _LaidOut(NamedTuple):
    """Rows of heads and numbers. ``ends``: the end of each number that is not null, ``row_ends``: the end of each row,
    both in bytes.

    ``at``: the place of each number that is not null, row by row; None if no number is null.
    """

    at: Places | None
    ends: Int64Array
    row_ends: Int64Array
    data: memoryview


class _Heads(NamedTuple):
    """The heads in front of numbers and the bytes in place of nulls: one of each for all fields, or one for each field.

    ``shifts`` and ``null_bits``: the bits of a head and of a null. ``longest``: the most bits of a head.
    """

    kind: RunKind
    longest: int
    heads: Words | int
    shifts: Words | int
    nulls: Words | int
    null_bits: Words | int

    @classmethod
    def of(cls, fields: Sequence[RunField], kind: RunKind) -> _Heads:
        return cls(
            kind,
            max(8 * len(field.head) for field in fields),
            _one_or_each([int.from_bytes(field.head, "little") for field in fields]),
            _one_or_each([8 * len(field.head) for field in fields]),
            _one_or_each([int.from_bytes(field.null, "little") for field in fields]),
            _one_or_each([8 * len(field.null) for field in fields]),
        )

    def laid_out(self, numbers: Int64Array, kept: _Kept) -> _LaidOut:
        """Lays out some rows of numbers. Nulls take no part in any step but the first and the last."""
        if not self.kind.presence:
            kept = numbers != 0 if kept is None else kept & (numbers != 0)
        at = None if kept is None else np.flatnonzero(kept)
        flat = numbers.flatten() if at is None else numbers.reshape(-1)[at]
        words, rest, bits = self._words(flat, at, numbers.shape)
        # First the end of each number if all others were null without bytes, then the bits of the nulls in front of it.
        ends = np.zeros(len(flat) + 1, np.uint64)
        np.cumsum(bits - _spread(self.null_bits, at, numbers.shape), out=ends[1:])
        starts = ends[:-1] + self._bits_of_nulls(at, numbers.shape)
        counts = np.full(*numbers.shape) if kept is None else np.count_nonzero(kept, axis=1)
        rows, fields = numbers.shape
        row_of_nulls = self.null_bits * fields if isinstance(self.null_bits, int) else int(self.null_bits.sum())
        row_ends = ends[np.cumsum(counts)] + np.arange(1, rows + 1, dtype=np.uint64) * row_of_nulls
        size = int(row_ends[-1]) >> 3
        out = np.zeros(size // WORD_BYTES + 4, np.uint64)
        _add_words(out, words, rest, starts)
        if kept is not None and not (isinstance(self.nulls, int) and not self.nulls):
            nulls = np.flatnonzero(~kept)
            places = ends[nulls - np.arange(len(nulls))] + self._bits_of_nulls(nulls, numbers.shape)
            words = np.zeros(len(nulls), np.uint64) + _spread(self.nulls, nulls, numbers.shape)
            _add_words(out, words, None, places)
        starts += bits
        starts >>= 3
        row_ends >>= 3
        return _LaidOut(at, starts.view(np.int64), row_ends.view(np.int64), out.view(np.uint8).data[:size])

    def _words(
        self, numbers: Int64Array, at: Places | None, shape: tuple[int, ...]
    ) -> tuple[Words, Words | None, Words]:
        """Head and varint of each number, up to two words, and their bits. ``numbers`` are overwritten."""
        spare = np.empty_like(numbers)
        if self.kind.zigzag:
            np.right_shift(numbers, WORD_BITS - 1, out=spare)
            numbers <<= 1
            numbers ^= spare
        words, rest, bits, size = varints(numbers.view(np.uint64), spare.view(np.uint64))
        shifts = _spread(self.shifts, at, shape)
        if 8 * size + self.longest > WORD_BITS:
            spilled = words >> np.subtract(WORD_BITS, shifts, dtype=np.uint64)
            rest = spilled if rest is None else spilled | rest << shifts
        words <<= shifts
        words |= _spread(self.heads, at, shape)
        return words, rest, np.add(bits, shifts, out=spare.view(np.uint64), dtype=np.uint64)

    def _bits_of_nulls(self, at: Places | None, shape: tuple[int, ...]) -> Words:
        """The bits in front of the places ``at``, if all fields were null."""
        rows, fields = shape
        if isinstance(self.null_bits, int):
            return (np.arange(rows * fields) if at is None else at).astype(np.uint64) * self.null_bits
        before = np.cumsum(np.broadcast_to(self.null_bits, shape))
        before -= np.broadcast_to(self.null_bits, shape).reshape(-1)
        return before if at is None else before[at]


def _one_or_each(numbers: Sequence[int]) -> Words | int:
    return numbers[0] if len(set(numbers)) == 1 else np.array(numbers, np.uint64)


def _spread(values: Words | int, at: Places | None, shape: tuple[int, ...]) -> Words | int:
    """The value for each place, taken from the fields' values."""
    if isinstance(values, int):
        return values
    by_row = np.broadcast_to(values, shape).reshape(-1)
    return by_row if at is None else by_row[at]


def _add_words(out: Words, words: Words, rest: Words | None, starts: Words) -> None:
    """Writes words at the bits ``starts`` into zeros; words may not overlap.

    Every word is shifted to its place among aligned words, and added to the one or two aligned words that it touches.
    No bit is set twice, so nothing carries. For example, a word of 16 bits at bit 56 adds its low 8 bits to the top of
    word 0, and its high 8 bits to the bottom of word 1.
    """
    shifts = starts & (WORD_BITS - 1)
    places = (starts >> 6).view(np.int64)
    np.add.at(out, places, words << shifts)
    np.subtract(WORD_BITS, shifts, out=shifts)
    np.add.at(out[1:], places, words >> shifts)
    if rest is not None:
        touched = np.flatnonzero(rest != 0)
        rest, places, shifts = rest[touched], places[touched] + 1, shifts[touched]
        np.add.at(out, places, rest << (WORD_BITS - shifts))
        np.add.at(out[1:], places, rest >> shifts)


class _Rows:
    """Encoded rows, block by block: at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._stream = pa.BufferOutputStream()
        self._ends: list[Int64Array] = [np.zeros(1, np.int64)]
        self._size = 0

    def add(self, ends: Int64Array, data: object) -> None:
        """Adds a block. ``ends``: the end of each of its rows in ``data``. Raises ``RowsTooLargeError``."""
        self._stream.write(data)
        self._ends.append(ends + self._size)
        self._size += int(ends[-1])
        if self._size > self._limit:
            raise RowsTooLargeError

    def array(self) -> pa.BinaryArray:
        return binary_array(np.concatenate(self._ends).astype(np.int32), self._stream.getvalue())


def _source(columns: list[pa.BinaryArray], block: slice) -> tuple[pa.BinaryArray, Int32Array]:
    """The slots of some rows, column after column, and their lengths, per field and row."""
    slots = _concat([column.slice(block.start, block.stop - block.start) for column in columns])
    _, buffer, data = slots.buffers()
    offsets = np.frombuffer(buffer, np.int32, len(slots) + 1)
    return binary_array(offsets, data or b""), np.diff(offsets).reshape(len(columns), -1)


def _concat(columns: list[pa.BinaryArray]) -> pa.BinaryArray:
    try:
        return pa.concat_arrays(columns)
    except pa.ArrowInvalid:  # the block is too large, because rows are larger than the average by which blocks are made
        raise RowsTooLargeError from None


def _interleave(heads: _LaidOut, lengths: Int64Array, source: pa.BinaryArray) -> tuple[Int64Array, pa.Buffer]:
    """The ends of the rows, and their bytes: each value behind its head.

    ``source``: the values, column after column. ``lengths``: their bytes, row by row.
    """
    rows, fields = lengths.shape
    flat = lengths.reshape(-1)
    used = np.flatnonzero((flat if heads.at is None else flat[heads.at]) != 0)
    places = used if heads.at is None else heads.at[used]
    # The heads from one value to the next are one slot.
    offsets = np.zeros(len(used) + 2, np.int32)
    offsets[1:-1] = heads.ends[used]
    offsets[-1] = heads.row_ends[-1]
    slots = _concat([binary_array(offsets, heads.data), source])
    picks = np.empty(2 * len(used) + 1, np.int32)
    picks[::2] = np.arange(len(used) + 1, dtype=np.int32)
    first = len(used) + 1
    picks[1::2] = np.arange(first, first + rows * fields, dtype=np.int32).reshape(fields, rows).T.reshape(-1)[places]
    taken = pc.take(slots, int32_array(picks), boundscheck=False)
    ends = np.zeros(rows * fields + 1, np.int64)
    ends[places + 1] = flat[places]
    row_ends = heads.row_ends + np.cumsum(ends)[fields::fields]
    return row_ends, taken.buffers()[2].slice(0, int(row_ends[-1]))
