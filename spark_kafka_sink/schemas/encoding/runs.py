"""Runs: neighbouring fields of one kind, which are encoded together as a matrix of rows and fields.

A call of numpy costs as much as 2,000 numbers, so wide rows cannot afford calls for each column of a few thousand rows.
A run takes a block of rows of all its columns, and every call works on the whole block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import Int32Array, Int64Array, binary_array, binary_column, int32_array
from spark_kafka_sink.schemas.encoding.columns import integers, invalid_utf8, plain
from spark_kafka_sink.schemas.encoding.row_writer import Kernel, Mask, RowWriter, bits_of
from spark_kafka_sink.schemas.encoding.varints import WORD_BITS, WORD_BYTES, Words, varints

_SHORTEST: Final = 4
"""Fewer fields are not a run: they are as fast one after the other."""
_BLOCK_VALUES: Final = 1 << 15
"""Values of a block, so that its arrays stay in the CPU's cache while a call costs little per value."""
_GATHERED_VALUES: Final = 1 << 18
_TEXT_VALUES: Final = 1 << 16
_TEXT_BYTES: Final = 4 << 20
_LONGEST_HEAD: Final = 5
_MAX_BYTES: Final = (1 << 31) - 1
_ALL: Final = (1 << WORD_BITS) - 1


class RunKind(NamedTuple):
    """What the fields of a run have in common.

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
        """Writes its part of ``columns``, which are those of ``struct``, in each row of ``keep``."""


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
        if kind is None or len(group) < _SHORTEST:
            kernels += [SingleField(each.place, each.kernel) for each in group]
        else:
            members = tuple(each.run_field for each in group if each.run_field is not None)
            kernels.append(Run(kind, tuple(each.place for each in group), members))
    return tuple(kernels)


def _kind(field: PlannedField) -> RunKind | None:
    each = field.run_field
    return field.kind if each is not None and max(len(each.head), len(each.null)) <= _LONGEST_HEAD else None


@dataclass(frozen=True, slots=True)
class Run:
    """Fields of one kind. ``places``: the column of each."""

    kind: RunKind
    places: tuple[int, ...]
    fields: tuple[RunField, ...]

    def write_fields(self, writer: RowWriter, struct: pa.Array, columns: Sequence[pa.Array], keep: Mask | None) -> None:
        arrays = [plain(columns[place]) for place in self.places]
        present = _present(arrays, writer.rows)
        write = self._write_integers if self.kind.not_utf8 is None else self._write_bytes
        encoded, invalid = write(arrays, present, writer.rows)
        for index, (field, array) in enumerate(zip(self.fields, arrays, strict=True)):
            if field.refusal and array.null_count:
                writer.refuse(bits_of(array, 0) == 0, field.path, array, field.refusal, keep)
            if invalid is not None:
                bad = invalid[index] if present is None else invalid[index] & (present[index] != 0)
                writer.refuse(bad, field.path, binary_column(array), self.kind.not_utf8 or "", keep)
        writer.column(encoded.array(), None if keep is None else keep == 0)

    def _write_integers(self, arrays: list[pa.Array], present: _Present, rows: int) -> tuple[_Rows, None]:
        columns = [integers(array) for array in arrays]
        heads = _Heads.of(self.fields, self.kind.presence)
        encoded = _Rows()
        for numbers, kept in _by_row(columns, present, rows):
            values, spare = numbers.view(np.uint64), np.empty(numbers.shape, np.uint64)
            np.multiply(values, kept, out=values)
            if self.kind.zigzag:
                _zigzag(numbers, spare.view(np.int64))
            ends, data = _laid_out(heads.before(values, kept, spare))
            encoded.add(ends[len(columns) - 1 :: len(columns)], data)
        return encoded, None

    def _write_bytes(
        self, arrays: list[pa.Array], present: _Present, rows: int
    ) -> tuple[_Rows, npt.NDArray[np.bool_] | None]:
        """Also returns where a value is not UTF-8, per field and row; None if all are."""
        columns = [_Texts.of(array) for array in arrays]
        heads = _Heads.of(self.fields, self.kind.presence)
        encoded = _Rows()
        invalid = None
        row_size = sum(len(each.data) for each in columns) // max(1, rows)
        for block in _blocks(rows, min(_TEXT_VALUES // len(columns), _TEXT_BYTES // max(1, row_size))):
            source, lengths = _source(columns, block)
            bad = invalid_utf8(source, None) if self.kind.not_utf8 else None
            if bad is not None:
                invalid = np.zeros((len(columns), rows), np.bool_) if invalid is None else invalid
                invalid[:, block] = bad.reshape(lengths.shape)
            values = lengths.T.astype(np.uint64, order="C")
            kept = _kept(present, block, values.shape)
            values *= kept  # a null slot may span bytes
            used = np.flatnonzero(values != 0)
            row_bytes = values.sum(axis=1).view(np.int64)
            values <<= int(self.kind.zigzag)
            heads_of_block = heads.before(values, kept, np.empty_like(values))
            encoded.add(*_interleaved(_laid_out(heads_of_block), row_bytes, used, source))
        return encoded, invalid


_Present = npt.NDArray[np.uint8] | None
"""0 for each null, per field and row; None if there is no null."""


def _present(arrays: list[pa.Array], rows: int) -> _Present:
    if not any(array.null_count for array in arrays):
        return None
    present = np.ones((len(arrays), rows), np.uint8)
    for index, array in enumerate(arrays):
        if array.null_count:
            present[index] = bits_of(array, 0)
    return present


def _by_row(columns: list[Int64Array], present: _Present, rows: int) -> Iterator[tuple[Int64Array, Words]]:
    """The numbers, and 1 for each that is not null, 0 for each null, by row and field, block by block.

    More rows are gathered at once than a block has, because each column costs two calls.
    """
    for gathered in _blocks(rows, _GATHERED_VALUES // len(columns)):
        numbers = np.concatenate([column[gathered] for column in columns]).reshape(len(columns), -1).T.copy(order="C")
        for block in _blocks(len(numbers), _BLOCK_VALUES // len(columns)):
            part = slice(gathered.start + block.start, gathered.start + block.stop)
            yield numbers[block], _kept(present, part, numbers[block].shape)


def _blocks(rows: int, step: int) -> Iterator[slice]:
    """An odd number of rows each: with a power of two, the columns of a row would share places of the CPU's cache."""
    step = max(1, step) | 1
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _zigzag(numbers: Int64Array, spare: Int64Array) -> None:
    """Makes signed numbers unsigned, in place."""
    np.right_shift(numbers, WORD_BITS - 1, out=spare)
    numbers <<= 1
    numbers ^= spare


def _kept(present: _Present, block: slice, shape: tuple[int, ...]) -> Words:
    """1 for each value that is not null, 0 for each null, by row and field."""
    return np.ones(shape, np.uint64) if present is None else present[:, block].T.astype(np.uint64, order="C")


class _Words(NamedTuple):
    """The low ``bits`` bits of ``words``, continued in ``rest``, per row and field. The bits beyond are 0.

    ``spare``: an array of the same shape, with any numbers.
    """

    words: Words
    rest: Words | None
    bits: Words
    spare: Words


class _Heads(NamedTuple):
    """What stands in front of varints, as numbers modulo 2**64: one for all fields, or one for each.

    ``shifts``: bits of the heads. ``nulls``: the bytes of a null; ``differences`` turn them into the head. In the same
    way, ``null_bits`` and ``bit_differences`` are added to the bits of a varint, of which a null has 8. ``longest``:
    the most bits of a head. ``presence``: as in ``RunKind``.
    """

    presence: bool
    longest: int
    shifts: Words | int
    nulls: Words | int
    differences: Words | int
    null_bits: Words | int
    bit_differences: Words | int

    @classmethod
    def of(cls, fields: Sequence[RunField], presence: bool) -> _Heads:
        pairs = [(int.from_bytes(each.head, "little"), int.from_bytes(each.null, "little")) for each in fields]
        bits = [(8 * len(each.head), 8 * len(each.null)) for each in fields]
        return cls(
            presence,
            max(shift for shift, _ in bits),
            _one_or_each(shift for shift, _ in bits),
            _one_or_each(null for _, null in pairs),
            _one_or_each(head - null for head, null in pairs),
            _one_or_each(null - 8 for _, null in bits),
            _one_or_each(8 + head - null for head, null in bits),
        )

    def before(self, values: Words, kept: Words, spare: Words) -> _Words:
        """Heads and varints of ``values`` where ``kept`` is 1, else nulls, where ``values`` must be 0.

        The three arrays have one shape, and are overwritten.
        """
        if not self.presence:
            np.not_equal(values, 0, out=kept)
        words, rest, bits, size = varints(values, spare)
        if 8 * size + self.longest > WORD_BITS:
            spilled = words >> np.subtract(WORD_BITS, self.shifts, dtype=np.uint64)
            rest = spilled if rest is None else spilled | rest << self.shifts
        words <<= self.shifts
        np.multiply(kept, self.differences, out=spare)
        spare += self.nulls
        words |= spare
        kept *= self.bit_differences
        kept += self.null_bits
        kept += bits
        return _Words(words, rest, kept, spare)


def _one_or_each(numbers: Iterable[int]) -> Words | int:
    each = [number & _ALL for number in numbers]
    return each[0] if len(set(each)) == 1 else np.array(each, np.uint64)


class _Rows:
    """Encoded rows, block by block."""

    def __init__(self) -> None:
        self._stream = pa.BufferOutputStream()
        self._ends: list[Int64Array] = [np.zeros(1, np.int64)]
        self._size = 0

    def add(self, ends: Int64Array, data: object) -> None:
        """Adds a block. ``ends``: of each of its rows in ``data``."""
        self._stream.write(data)
        self._ends.append(ends + self._size)
        self._size += int(ends[-1])
        if self._size > _MAX_BYTES:
            raise InvalidRecordError("more than 2 GiB of encoded rows: encode fewer rows at once")

    def array(self) -> pa.BinaryArray:
        return binary_array(np.concatenate(self._ends).astype(np.int32), self._stream.getvalue())


def _laid_out(fields: _Words) -> tuple[Int64Array, memoryview]:
    """The end of each row and field in bytes, and the bytes of all rows. The arrays of ``fields`` are overwritten.

    Every word is shifted to its place among aligned words, and added to the one or two that it touches. No bit is set
    twice, so nothing carries.
    """
    words, bits, shifts = (each.reshape(-1) for each in (fields.words, fields.bits, fields.spare))
    ends = np.cumsum(bits)
    starts = np.subtract(ends, bits, out=bits)
    np.bitwise_and(starts, WORD_BITS - 1, out=shifts)
    starts >>= 6
    ends >>= 3
    size = int(ends[-1])
    places = starts.view(np.int64)
    out = np.zeros(size // WORD_BYTES + 4, np.uint64)
    np.add.at(out, places, words << shifts)
    np.subtract(WORD_BITS, shifts, out=shifts)
    words >>= shifts
    np.add.at(out[1:], places, words)
    if fields.rest is not None:
        touched = np.flatnonzero(fields.rest != 0)
        rest, places, shifts = fields.rest.reshape(-1)[touched], places[touched] + 1, shifts[touched]
        np.add.at(out, places, rest << (WORD_BITS - shifts))
        np.add.at(out[1:], places, rest >> shifts)
    return ends.view(np.int64), out.view(np.uint8).data[:size]


class _Texts(NamedTuple):
    """The slots of a column of bytes: slot ``i`` is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: Int32Array
    data: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, array: pa.Array) -> _Texts:
        column = binary_column(array)
        _, offsets_buffer, buffer = column.buffers()
        if not len(column) or offsets_buffer is None:
            return cls(np.zeros(len(column) + 1, np.int32), np.zeros(0, np.uint8))
        offsets = np.frombuffer(offsets_buffer, np.int32, len(column) + 1, 4 * column.offset)
        first, end = int(offsets[0]), int(offsets[-1])
        if end == first:
            return cls(np.zeros(len(column) + 1, np.int32), np.zeros(0, np.uint8))
        return cls(offsets - first if first else offsets, np.frombuffer(buffer, np.uint8, end - first, first))


def _source(columns: list[_Texts], block: slice) -> tuple[pa.BinaryArray, Int32Array]:
    """The slots of some rows, column after column, and their lengths, per field and row."""
    bounds = np.concatenate([each.offsets[block.start : block.stop + 1] for each in columns]).reshape(len(columns), -1)
    lengths = bounds[:, 1:] - bounds[:, :-1]
    ends = zip(columns, bounds[:, 0].tolist(), bounds[:, -1].tolist(), strict=True)
    data = np.concatenate([each.data[first:end] for each, first, end in ends])
    if len(data) > _MAX_BYTES:
        raise InvalidRecordError("more than 2 GiB of encoded rows: encode fewer rows at once")
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return binary_array(offsets, data), lengths


def _interleaved(
    heads: tuple[Int64Array, memoryview], row_bytes: Int64Array, used: npt.NDArray[np.intp], source: pa.BinaryArray
) -> tuple[Int64Array, pa.Buffer]:
    """The ends of the rows, and their bytes: each value behind its head. ``used``: the values that have any bytes.

    ``source``: the values, column after column. ``row_bytes``: those of the values of each row.
    """
    ends, data = heads
    rows, fields = len(row_bytes), len(ends) // len(row_bytes)
    # The heads from one value to the next are one slot.
    offsets = np.zeros(len(used) + 2, np.int32)
    offsets[1:-1] = ends[used]
    offsets[-1] = ends[-1]
    slots = pa.concat_arrays([binary_array(offsets, data), source])
    picks = np.empty(2 * len(used) + 1, np.int32)
    picks[::2] = np.arange(len(used) + 1, dtype=np.int32)
    first = len(used) + 1
    picks[1::2] = np.arange(first, first + rows * fields, dtype=np.int32).reshape(fields, rows).T.reshape(-1)[used]
    taken = pc.take(slots, int32_array(picks), boundscheck=False)
    row_ends = ends[fields - 1 :: fields] + np.cumsum(row_bytes)
    return row_ends, taken.buffers()[2].slice(0, int(row_ends[-1]))
