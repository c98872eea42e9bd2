"""The common part of the encoders of all formats: errors, varints, and rows laid out field by field.

Short fields of a row share a piece of ``RowJoin``; faulty rows are collected. A field of up to 8 bytes is a uint64 word
whose first byte is the least significant. Neighbouring words are merged by shifts, and the bytes beyond 8 begin the
next word. So the cost of a piece (4 ns a row) is paid per 8 bytes instead of per field. Varints (LEB128) are such
words, too, computed for all values of a column at once. For example, a tag ``08`` and the varint of 300, ``ac 02``, are
the words 0x08 (8 bits) and 0x02ac (16 bits), and merged the word 0x02ac08 of 24 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError, error_list, first_items, listed, sanitize
from spark_kafka_sink.records.arrays import (
    MAX_BYTES,
    Int64Array,
    RowsTooLargeError,
    binary_array,
    bytes_column,
    is_any_list,
    null_mask,
    slot_lengths,
)
from spark_kafka_sink.records.encode import RowJoin
from spark_kafka_sink.records.varint_columns import zigzag


class Encoder(Protocol):
    """A plan from an Arrow type to a schema, made once on the driver. Picklable, and safe to use in any thread."""

    def encode(
        self, array: pa.Array, prefix: bytes = b"", faults: list[EncodingFault] | None = None, most: int = MAX_BYTES
    ) -> pa.BinaryArray:
        """``prefix`` and the encoded value of each row, null where the row is null.

        Raises ``UnencodableRowsError`` with all faulty rows. If ``faults`` is given, they are added to it instead, and
        their values are null. Raises ``RowsTooLargeError`` for several rows of more than ``most`` bytes.
        """


_Encoded = TypeVar("_Encoded")


def in_halves(encode: Callable[[Any], _Encoded], rows: Any, first: int = 0) -> Iterator[_Encoded]:
    """The results of ``encode`` for ``rows``, which have a length and slices, or for each half if the rows become too
    large.

    Raises ``RowsTooLargeError`` for one row that is too large by itself, counted from ``first``.
    """
    try:
        encoded = encode(rows)
    except RowsTooLargeError:
        if len(rows) < 2:
            raise RowsTooLargeError("the row would take more than 2 GiB", first) from None
        half = len(rows) // 2
        yield from in_halves(encode, rows[0:half], first)
        yield from in_halves(encode, rows[half : len(rows)], first + half)
    else:
        yield encoded


def column_of(rows: object) -> pa.Array | pa.ChunkedArray:
    """An Arrow array, or the rows of a table or record batch as structs. Raises ``InvalidRecordError`` for all else."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return rows.to_struct_array()
    if not isinstance(rows, pa.Array | pa.ChunkedArray):
        raise InvalidRecordError(
            f"give an Arrow array, a table or a record batch, not {type(rows).__name__}: a table of a pandas frame is "
            "pyarrow.Table.from_pandas(frame), of a polars frame frame.to_arrow()"
        )
    return rows


class EncodingFault(NamedTuple):
    """A row that its schema does not allow. ``path``: the field, such as ``address.lines[]``. ``problem``: the text,
    with the row's value."""

    row: int
    path: str
    problem: str


class UnencodableRowsError(InvalidRecordError):
    """Rows do not fit their schema. ``faults``: one for each such row, in order. ``row``: the number of the first
    one."""

    def __init__(self, faults: Sequence[EncodingFault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(sanitize(f"{first.path}: {first.problem}" if first.path else first.problem), first.row)


class SchemaMismatchError(InvalidRecordError):
    """A column's type does not fit its schema. ``mismatches``: a sentence for each of the first 50 paths."""

    def __init__(self, mismatches: Sequence[str]) -> None:
        self.mismatches = tuple(first_items(mismatches))
        super().__init__(error_list(mismatches))


class InvalidSchemaError(SchemaMismatchError):
    """A text is not a schema. The message has the text, shortened."""


Words: TypeAlias = npt.NDArray[np.integer]
"""Words (uint64) whose first byte to write is the least significant one."""

WORD_BITS: Final = 64
WORD_BYTES: Final = 8
_GROUP: Final = 7
_LOW_BITS: Final = WORD_BYTES * _GROUP
_SPREADS: Final = (
    (4, 0x00FFFFFFF0000000, (1 << 4) - 1),
    (2, 0x0FFFC0000FFFC000, (1 << 2) - 1),
    (1, 0x3F803F803F803F80, (1 << 1) - 1),
)
"""The steps that spread groups of 28, then 14, then 7 bits to 32, 16 and 8 bits.

Each step is for values of more bytes than its first number. The second number masks the bits to shift left, and the
third is 2**distance - 1: a number plus the masked bits times this factor has them shifted. For example, 300 =
0b10_0101100 becomes 0b10_00101100: the bits above the seventh move by 1 bit, because 0b10_0000000 + 0b10_0000000 *
(2**1 - 1) is 0b100_0000000. With the continuation bit 0x80 in the first byte, that is 0x02ac.
"""
_MORE: Final = 0x8080808080808080
_MANTISSA: Final = 52
_WHOLE_BYTES: Final = 0xFF8
_ONE_BYTE: Final = 1024
"""The biased exponent of a float64 below 2, plus 1."""


class Varints(NamedTuple):
    """The varint of each number: the low ``bits`` bits of ``words``, continued in ``rest``. The bits beyond are 0.

    ``rest`` is None if no varint has more than 8 bytes. ``size``: the most bytes of a varint.
    """

    words: Words
    rest: Words | None
    bits: Words | int
    size: int


def varints(numbers: Words, spare: Words) -> Varints:
    """The varints of an array of any shape. ``spare`` is an array of the same shape; both are overwritten.

    New arrays for each step would not stay in the CPU's cache: they take a third longer.
    """
    size = max(1, -(-int(numbers.max(initial=0)).bit_length() // _GROUP))
    if size == 1:
        return Varints(numbers, None, 8, size)
    high = numbers >> _LOW_BITS if size > WORD_BYTES else None
    if high is not None:
        numbers &= (1 << _LOW_BITS) - 1
    for above, moved, factor in _SPREADS:
        if size > above:
            np.bitwise_and(numbers, moved, out=spare)
            spare *= factor
            numbers += spare
    bits = _bits(numbers, spare)
    np.subtract(WORD_BITS + 8, bits, out=spare)
    np.right_shift(_MORE, spare, out=spare)
    numbers |= spare
    if high is None:
        return Varints(numbers, None, bits, size)
    goes_on = high != 0
    numbers |= np.where(goes_on, np.uint64(_MORE), np.uint64(0))
    tenth = high >> _GROUP
    bits = np.where(goes_on, 8 * (WORD_BYTES + 1) + 8 * tenth, bits)
    return Varints(numbers, high | tenth << 8, bits, size)


def _bits(groups: Words, spare: Words) -> Words:
    """The bits of each varint: 8 for each byte up to the last one that is not 0, at least 8. Each byte has 7 bits.

    The exponent of a float64 is the position of the highest bit. Rounding carries at most into the eighth bit of the
    same byte.
    """
    np.bitwise_or(groups, 1, out=spare)
    bits = spare.view(np.int64).astype(np.float64).view(np.uint64)
    bits >>= _MANTISSA
    bits += 1
    bits &= _WHOLE_BYTES
    bits -= _ONE_BYTE - 8
    return bits


Mask: TypeAlias = npt.NDArray[np.integer]
"""A mask (uint64): for each row all bits (write it) or none (leave it out). None in place of a mask: write all rows."""

_ALL = (1 << WORD_BITS) - 1
_CACHED_SLOTS = 1 << 16
_MAX_ROWS = (1 << 31) // (WORD_BYTES) - 1
"""The most rows of a writer, because the offsets of the words are int32."""
_OFFSET_BYTES = 4
_MAX_SHOWN = 100
LARGEST_SLICE: Final = 128 << 20
"""The most bytes that several rows may become at once. A worker has memory for this, even if a schema adds much to the
rows, such as defaults. The limit is twice the limit of the rows as columns, so rows that only change their form seldom
exceed it.
"""


class Kernel(Protocol):
    """A node of an encoder's plan: writes a value per row."""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        """Writes a slot of ``array`` for each row of ``keep``. A refused row gets any bytes.

        Kernels of single values get nulls in rows outside ``keep`` only, because kernels of fields take nulls out.
        """


class _WordPiece(NamedTuple):
    """The arguments of ``RowWriter.words``."""

    words: Words | int
    bits: Words | int
    largest: int


class _ColumnPiece(NamedTuple):
    """The arguments of ``RowWriter.column``: a slot for each row, no bytes where ``missing``."""

    array: pa.BinaryArray
    slots: npt.NDArray[np.int32] | int
    missing: npt.NDArray[np.bool_] | None = None

    def is_all_rows(self) -> bool:
        """Whether the rows are the array's slots, so that there is nothing to copy."""
        return self.missing is None and not isinstance(self.slots, int) and not self.array.offset


class RowWriter:
    """Takes the fields of ``rows`` rows, in their order within a row; ``finish`` returns the rows.

    With ``parents``, the rows are items of another writer's rows: ``counts[i]`` items of row ``i``, or one item of each
    if ``counts`` is None. ``limit``: the most bytes of all rows.
    """

    __slots__ = ("_bits", "_counts", "_largest", "_parents", "_pieces", "_words", "faults", "limit", "rows")

    def __init__(self, rows: int, parents: RowWriter | None = None, counts: Int64Array | None = None) -> None:
        if rows > _MAX_ROWS:
            raise RowsTooLargeError(
                f"the arrays have {rows} items, and at most {_MAX_ROWS} can be encoded at once: encode fewer rows at "
                "once"
            )
        self.rows = rows
        self.limit: int = parents.limit if parents is not None else LARGEST_SLICE if rows > 1 else MAX_BYTES
        self.faults: dict[int, EncodingFault] = {} if parents is None else parents.faults
        self._parents = parents
        self._counts = counts
        self._pieces: list[_WordPiece | _ColumnPiece] = []
        self._words: Words | int = 0
        self._bits: Words | int = 0
        self._largest = 0

    def words(self, words: Words | int, bits: Words | int, largest: int) -> None:
        """Writes the low ``bits[i]`` bits (a multiple of 8, at most ``largest``) of ``words[i]``.

        The other bits of a word must be 0. An int stands for all rows.
        """
        if not largest:
            return
        if self._largest == WORD_BITS:
            self._end_words()
        if not self._largest:
            self._words, self._bits, self._largest = words, bits, largest
            return
        before, total = self._bits, self._bits + bits
        joined = words << before
        if isinstance(joined, int):
            joined &= _ALL
        joined |= self._words
        self._words, self._bits, self._largest = joined, total, self._largest + largest
        if self._largest > WORD_BITS:
            rest = self._largest - WORD_BITS
            self._bits = min(total, WORD_BITS) if isinstance(total, int) else np.minimum(total, WORD_BITS)
            rest_bits = total - self._bits
            self._end_words()
            self._words, self._bits, self._largest = words >> (WORD_BITS - before), rest_bits, rest

    def fixed(self, data: bytes, keep: Mask | None) -> None:
        """Writes the same bytes in every row of ``keep``."""
        if len(data) <= WORD_BYTES:
            word, bits = int.from_bytes(data, "little"), 8 * len(data)
            self.words(word if keep is None else keep & word, bits if keep is None else keep & bits, bits)
            return
        self._end_words()
        self._pieces.append(_ColumnPiece(bytes_column([data]), 0, None if keep is None else keep == 0))

    def column(self, array: pa.BinaryArray, missing: npt.NDArray[np.bool_] | None = None) -> None:
        """Writes a slot, which must not be null, for each row, except where ``missing``."""
        self._end_words()
        self._pieces.append(_ColumnPiece(array, _slots(1, self.rows), missing))

    def append(self, other: RowWriter) -> None:
        """Writes the fields of another writer of as many rows, which must not be used afterwards."""
        other._end_words()
        for piece in other._pieces:
            if isinstance(piece, _WordPiece):
                self.words(*piece)
            else:
                self._end_words()
                self._pieces.append(piece)

    def lengths(self) -> Int64Array:
        """The bytes that each row has so far."""
        self._end_words()
        lengths = np.zeros(self.rows, np.int64)
        bits = np.zeros(self.rows, np.uint64)
        for piece in self._pieces:
            if isinstance(piece, _WordPiece):
                bits += piece.bits
            else:
                each = slot_lengths(piece.array)[piece.slots]
                lengths += each if piece.missing is None else np.where(piece.missing, 0, each)
        lengths += (bits >> 3).view(np.int64)
        return lengths

    def finish(self) -> tuple[npt.NDArray[np.int32], memoryview]:
        """The offsets of the rows (one more than there are rows), and their bytes. Raises ``RowsTooLargeError``."""
        self._end_words()
        if not self._pieces:
            return np.zeros(self.rows + 1, np.int32), memoryview(b"")
        first = self._pieces[0]
        if len(self._pieces) == 1 and isinstance(first, _ColumnPiece) and first.is_all_rows():
            _, offsets, data = first.array.buffers()
            return np.frombuffer(offsets, np.int32, self.rows + 1), memoryview(data)
        size = sum(map(self._size, self._pieces))
        if size > self.limit and (size := int(self.lengths().sum())) > self.limit:
            raise RowsTooLargeError
        join = RowJoin(self.rows, size)
        for piece in self._pieces:
            join.slots(*(self._column(*piece) if isinstance(piece, _WordPiece) else piece))
        data, starts = join.finish()
        return np.ascontiguousarray(starts), data

    def refuse(
        self, bad: npt.NDArray[np.bool_], path: str, array: pa.Array, reason: str, keep: Mask | None = None
    ) -> None:
        """Notes a fault for each row of ``keep`` where ``bad`` is true: the row's value, then ``reason``.

        A row keeps its first fault.
        """
        if not bad.any():
            return
        at = np.flatnonzero(bad if keep is None else bad & (keep != 0))
        nulls, of_null = null_mask(array)[at].tolist(), f"null {reason}"
        for index, row, is_null in zip(at.tolist(), self._rows(at).tolist(), nulls, strict=True):
            if row not in self.faults:
                problem = of_null if is_null else f"{_show_value(array, index)} {reason}"
                self.faults[row] = EncodingFault(row, path, problem)

    def _rows(self, indexes: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        if self._parents is None:
            return indexes
        if self._counts is not None:
            indexes = np.searchsorted(np.cumsum(self._counts), indexes, side="right")
        return self._parents._rows(indexes)

    def _end_words(self) -> None:
        if self._largest:
            self._pieces.append(_WordPiece(self._words, self._bits, self._largest))
            self._largest = 0

    def _column(self, words: Words | int, bits: Words | int, largest: int) -> _ColumnPiece:
        if isinstance(words, int):
            if isinstance(bits, int):
                return _ColumnPiece(bytes_column([words.to_bytes(WORD_BYTES, "little")[: bits // 8]]), 0)
            words = np.full(self.rows, words, np.uint64)
        # Slot 2i has the bytes that row i writes of its word, slot 2i + 1 the rest of the word.
        starts = _slots(WORD_BYTES, self.rows + 1)
        offsets = np.empty(2 * self.rows + 1, np.int32)
        offsets[::2] = starts
        sizes = bits >> 3 if isinstance(bits, int) else (bits >> 3).astype(np.int32)
        np.add(starts[:-1], sizes, out=offsets[1::2])
        return _ColumnPiece(binary_array(offsets, np.ascontiguousarray(words)), _slots(2, self.rows))

    def _size(self, piece: _WordPiece | _ColumnPiece) -> int:
        """An upper bound of the bytes of all rows."""
        if isinstance(piece, _WordPiece):
            return piece.largest // 8 * self.rows
        data = int(piece.array.nbytes) - _OFFSET_BYTES * len(piece.array)
        return data * self.rows if isinstance(piece.slots, int) else data


def lists_of(items: RowWriter, counts: Int64Array) -> pa.BinaryArray:
    """Slots of ``counts[i]`` rows of ``items`` each."""
    starts, data = items.finish()
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return binary_array(starts[ends], data)


def _slots(step: int, count: int) -> npt.NDArray[np.int32]:
    """The multiples of ``step``, from 0 on."""
    return _kept_slots(step)[:count] if count <= _CACHED_SLOTS else np.arange(0, step * count, step, dtype=np.int32)


@lru_cache(8)
def _kept_slots(step: int) -> npt.NDArray[np.int32]:
    return np.arange(0, step * _CACHED_SLOTS, step, dtype=np.int32)


def mask_of(array: pa.Array) -> Mask | None:
    """The rows of ``array`` that are not null; None for all."""
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.uint64)
    if not array.null_count:
        return None
    mask = bits_of(array, 0).astype(np.uint64)
    return np.negative(mask, out=mask)


def bits_of(array: pa.Array, buffer: int) -> npt.NDArray[np.uint8]:
    """0 or 1 per row, from the bitmap that is the array's buffer of this number."""
    first, skipped = divmod(array.offset, 8)
    count = skipped + len(array)
    data = np.frombuffer(array.buffers()[buffer], np.uint8, -(-count // 8), first)
    return np.unpackbits(data, bitorder="little", count=count)[skipped:]


def both(one: Mask | None, other: Mask | None) -> Mask | None:
    """The rows that are in both masks."""
    if one is None:
        return other
    return one if other is None else one & other


def _without_pandas(scalar: pa.Scalar) -> pa.Scalar:
    """The value in a type that Arrow converts without pandas: nanoseconds become text, and time zones become UTC."""
    kind = scalar.type
    if pt.is_temporal(kind) and getattr(kind, "unit", "") == "ns":
        return scalar.cast(pa.string())
    if pt.is_timestamp(kind) and kind.tz is not None:
        return scalar.cast(pa.timestamp(kind.unit))
    return scalar


def _show_value(array: pa.Array, index: int) -> str:
    """The text of the value in a message."""
    text = _shown(array[index])
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _shown(scalar: pa.Scalar) -> str:
    """The value, or its beginning: the part that no message shows is not converted."""
    if not scalar.is_valid:
        return "null"
    kind = scalar.type
    if pt.is_struct(kind):
        fields = [
            f"{field.name!r}: {_shown(scalar[index])}" for index, field in enumerate(kind) if scalar[index].is_valid
        ]
        return f"{{{listed(fields, _MAX_SHOWN)}}}"
    if is_any_list(kind) or pt.is_map(kind):
        return f"{len(scalar.values)} values"
    if isinstance(scalar, pa.BinaryScalar):
        data = scalar.as_buffer()[: 4 * _MAX_SHOWN].to_pybytes()
        return repr(data if "binary" in str(kind) else data.decode(errors="replace"))
    scalar = _without_pandas(scalar)
    try:
        return str(scalar.as_py())
    except (ValueError, OverflowError):  # beyond datetime's years
        return str(getattr(scalar, "value", "a value"))


def write_zigzag(writer: RowWriter, numbers: npt.NDArray[np.int64], keep: Mask | None) -> None:
    """Writes a signed varint (Avro's int and long) in each row of ``keep``."""
    write_varints(writer, zigzag(numbers).view(np.uint64), keep)


def write_varints(writer: RowWriter, numbers: Words, keep: Mask | None, tag: bytes = b"") -> None:
    """Writes ``tag`` and an unsigned varint in each row of ``keep``."""
    numbers = numbers.copy() if keep is None else numbers & keep
    words, rest, bits, size = varints(numbers, np.empty_like(numbers))
    if len(tag) + size > WORD_BYTES:
        writer.fixed(tag, keep)
        tag = b""
    if rest is None:
        write_words(writer, words, bits, size, keep, tag)
        return
    low = np.minimum(bits, WORD_BITS)
    write_words(writer, words, low, WORD_BYTES, keep)
    writer.words(rest, bits - low, 16)


def write_words(
    writer: RowWriter, words: Words, bits: Words | int, size: int, keep: Mask | None, tag: bytes = b""
) -> None:
    """Writes ``tag`` and the low ``bits[i]`` bits of ``words[i]``, at most 8 bytes, in each row of ``keep``."""
    before = 8 * len(tag)
    if before:
        words = words << before
        words |= int.from_bytes(tag, "little")
        bits = bits + before
    if keep is not None:
        words, bits = words & keep, bits & keep
    writer.words(words, bits, before + 8 * size)
