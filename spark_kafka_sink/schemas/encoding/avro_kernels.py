"""The nodes of an Avro encoder: each writes a column of one Arrow type as one Avro type.

The nodes for nulls and nested types come first, then single values, enum and fixed, decimals, UUIDs. Nodes are pickled
with the encoder, so they are plain data without a schema. For example, the schema ``["null", "long"]`` of the column
[3, null] is ``Branch(null=b"\\0", index=b"\\2", value=Integer(…))``. It writes ``02 06`` (index 1, then 3, both as
zigzag varints) and ``00``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.records.arrays import Int64Array, binary_column, list_elements, null_mask, plain, raw_numbers
from spark_kafka_sink.schemas.encoding.columns import floats, integers, invalid_utf8, only, refuse_repeated_keys, spans
from spark_kafka_sink.schemas.encoding.encoder import (
    WORD_BITS,
    Kernel,
    Mask,
    RowWriter,
    Words,
    bits_of,
    both,
    lists_of,
    mask_of,
    write_words,
    write_zigzag,
)
from spark_kafka_sink.schemas.encoding.runs import FieldKernel, PlannedField, RunField, RunKind


@dataclass(frozen=True, slots=True)
class Constant:
    """A default for a column that the rows lack, or a null, which has no bytes outside a union."""

    data: bytes

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        writer.fixed(self.data, keep)


@dataclass(frozen=True, slots=True)
class Required:
    """Values of a schema without null. ``index``: the encoded index of the branch in a union without null, empty
    outside a union."""

    path: str
    schema: str
    value: Kernel
    index: bytes = b""

    @property
    def refusal(self) -> str:
        """The reason for which a null is refused."""
        return f"is not allowed: the schema says {self.schema}, without null"

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        present = mask_of(array)
        if present is not None:
            writer.refuse(present == 0, self.path, array, self.refusal, keep)
            keep = both(keep, present)
        writer.fixed(self.index, keep)
        self.value.write(writer, array, keep)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a union, and its null. ``null`` and ``index`` are the encoded indexes of the two branches."""

    null: bytes
    index: bytes
    value: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        present = mask_of(array)
        if present is None:
            writer.fixed(self.index, keep)
        elif len(self.null) == len(self.index) == 1:
            null, index = self.null[0], self.index[0]
            branches = present & index if not null else (present & index) | (~present & null)
            writer.words(branches if keep is None else branches & keep, 8 if keep is None else keep & 8, 8)
        else:
            writer.fixed(self.index, both(keep, present))
            writer.fixed(self.null, both(keep, ~present))
        self.value.write(writer, array, both(keep, present))


@dataclass(frozen=True, slots=True)
class Members:
    """A union of several types, from Spark's struct for it: of ``member0``, ``member1`` and so on, one is not null.

    ``null``: the encoded index of the branch null; None if the union has none. ``members``: the encoded index of each
    other branch, and its kernel.
    """

    path: str
    schema: str
    null: bytes | None
    members: tuple[tuple[bytes, Kernel], ...]

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        values = np.zeros(len(array), np.uint64)
        for (index, kernel), column in zip(self.members, map(plain, array.flatten()), strict=True):
            present = mask_of(column)
            values += 1 if present is None else present & 1
            writer.fixed(index, both(keep, present))
            kernel.write(writer, column, both(keep, present))
        if self.null is not None:
            writer.fixed(self.null, both(keep, np.negative((values == 0).astype(np.uint64))))
        bad = values != 1 if self.null is None else values > 1
        writer.refuse(bad, self.path, array, f"does not have one value for {self.schema}", keep)


@dataclass(frozen=True, slots=True)
class RecordValue:
    """A record, from a struct. ``fields``: the record's fields, in the schema's order."""

    fields: tuple[FieldKernel, ...]

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        columns = array.flatten()  # respects slices; children of a null struct become null
        for field in self.fields:
            field.write_fields(writer, array, columns, keep)


@dataclass(frozen=True, slots=True)
class Items:
    """An array, written as other writers do: the count and the items in one block, then 0; only 0 if it is empty."""

    item: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        counts, items = list_elements(only(array, keep))
        inner = RowWriter(len(items), writer, counts)
        if len(items):
            self.item.write(inner, items, None)
        _write_blocks(writer, inner, counts, keep)


@dataclass(frozen=True, slots=True)
class Entries:
    """A map, written as one block of keys and values in Arrow's order."""

    path: str
    key: Kernel
    value: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        counts, entries = list_elements(only(array, keep))
        keys, values = entries.flatten()
        keys = plain(keys)
        inner = RowWriter(len(entries), writer, counts)
        refuse_repeated_keys(inner, self.path, counts, keys)
        if len(entries):
            self.key.write(inner, keys, None)
            self.value.write(inner, values, None)
        _write_blocks(writer, inner, counts, keep)


def _write_blocks(writer: RowWriter, inner: RowWriter, counts: Int64Array, keep: Mask | None) -> None:
    """Writes ``counts[i]`` rows of ``inner`` as the items of row ``i``."""
    write_zigzag(writer, counts, np.negative((counts > 0).astype(np.uint64)))
    writer.column(lists_of(inner, counts))
    writer.fixed(b"\0", keep)


NOT_UTF8 = "is not UTF-8"
LONGS = (-1 << 63, (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Boolean:
    """A boolean, which is one byte."""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        bits = bits_of(array, 1).astype(np.uint64)
        write_words(writer, bits, 8, 1, keep)


@dataclass(frozen=True, slots=True)
class Integer:
    """int and long, and all logical types that count days or parts of a second. For example, microseconds become
    timestamp-millis with ``divisor`` 1,000.

    A value is multiplied by ``factor`` or divided by ``divisor``. A division with a remainder is rounded down if
    ``rounds`` is true; otherwise it is a fault. ``bounds``: the smallest and the largest result.
    """

    path: str
    schema: str
    factor: int = 1
    divisor: int = 1
    rounds: bool = False
    bounds: tuple[int, int] = LONGS

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        numbers = integers(array)
        reason = f"does not fit {self.schema}"
        if self.divisor > 1:
            quotients = numbers // self.divisor
            if not self.rounds:
                writer.refuse(quotients * self.divisor != numbers, self.path, array, reason, keep)
            numbers = quotients
        low, high = -(-self.bounds[0] // self.factor), self.bounds[1] // self.factor
        if (low, high) != LONGS:
            writer.refuse((numbers < low) | (numbers > high), self.path, array, reason, keep)
        write_zigzag(writer, numbers * self.factor if self.factor > 1 else numbers, keep)


@dataclass(frozen=True, slots=True)
class Real:
    """float (``bits`` is 32) and double (64), from any number that they hold exactly."""

    path: str
    bits: int

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        kind = np.dtype(f"f{self.bits // 8}")
        if pt.is_integer(array.type):
            numbers = integers(array)
            values = numbers.astype(kind)
            beyond = values >= 2.0**63  # the largest numbers are rounded to one beyond int64
            bad = beyond | (np.where(beyond, 0, values).astype(np.int64) != numbers)
            schema = "float" if self.bits == 32 else "double"
            writer.refuse(bad, self.path, array, f"has more digits than {schema} holds", keep)
        else:
            values = floats(array).astype(kind, copy=False)
        words = values.view(np.dtype(f"u{self.bits // 8}")).astype(np.uint64, copy=False)
        write_words(writer, words, self.bits, self.bits // 8, keep)


@dataclass(frozen=True, slots=True)
class Bytes:
    """bytes, from bytes or strings. ``has_length``: False for bytes at the top of a schema, of which Confluent's
    serializers write no length."""

    has_length: bool = True

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, lengths, missing = spans(array, keep)
        if self.has_length:
            write_zigzag(writer, lengths, keep)
        writer.column(column, missing)


@dataclass(frozen=True, slots=True)
class Text:
    """string, from strings or from bytes that are UTF-8."""

    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, lengths, missing = spans(array, keep)
        bad = invalid_utf8(column, missing)
        if bad is not None:
            writer.refuse(bad, self.path, column, NOT_UTF8)
        write_zigzag(writer, lengths, keep)
        writer.column(column, missing)


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum, written as the number of its symbol. ``refusal``: why another value is refused."""

    path: str
    refusal: str
    symbols: pa.BinaryArray

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column = binary_column(array)
        numbers = pc.index_in(column, value_set=self.symbols)
        writer.refuse(null_mask(numbers), self.path, array, self.refusal, keep)
        write_zigzag(writer, raw_numbers(numbers, np.int32).astype(np.int64), keep)


@dataclass(frozen=True, slots=True)
class Fixed:
    """fixed: bytes that all have the same length."""

    path: str
    schema: str
    size: int

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, lengths, missing = spans(array, keep)
        reason = f"does not have the {self.size} bytes of {self.schema}"
        writer.refuse(lengths != self.size, self.path, array, reason, keep)
        writer.column(column, missing)


def plan_field(place: int, kernel: Kernel) -> PlannedField:
    """A field of a record, and its part in a run of similar fields."""
    if place < 0 or not isinstance(kernel, Branch | Required):
        return PlannedField(place, kernel)
    value = kernel.value
    match value:
        case Integer(factor=1, divisor=1, bounds=bounds) if bounds == LONGS:
            kind, path = RunKind(zigzag=True), value.path
        case Text():
            kind, path = RunKind(zigzag=True, not_utf8=NOT_UTF8), value.path
        case Bytes(has_length=True):
            kind, path = RunKind(zigzag=True, not_utf8=""), ""
        case _:
            return PlannedField(place, kernel)
    if isinstance(kernel, Branch):
        return PlannedField(place, kernel, kind, RunField(path, kernel.index, kernel.null))
    return PlannedField(place, kernel, kind, RunField(kernel.path, kernel.index, b"", kernel.refusal))


MAX_DIGITS = 76
"""The most digits that a decimal has in Arrow."""
_DIGIT_BYTES = WORD_BITS // 8
_DIGIT_MASK = (1 << WORD_BITS) - 1


@dataclass(frozen=True, slots=True)
class Decimal:
    """A decimal in bytes or fixed: its unscaled number as big-endian two's complement.

    ``size``: the size of the fixed; None for bytes, which are as few as hold the number. For example, -129 is ``ff 7f``
    as bytes, and ``ff ff 7f`` as a fixed of 3. ``rescaled``: the decimal type that the values are cast to first, if the
    schema has another scale. ``has_length``: as for ``Bytes``.
    """

    path: str
    schema: str
    precision: int
    size: int | None
    rescaled: pa.DataType | None
    has_length: bool = True

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        digits = _digits(array if self.rescaled is None else array.cast(self.rescaled), keep)
        if self.precision <= MAX_DIGITS:  # Arrow has no more, and a schema may have billions
            largest = 10**self.precision - 1
            bad = _exceeds(digits, largest) | _exceeds([~digit for digit in digits], largest - 1)
            writer.refuse(bad, self.path, array, f"does not fit {self.schema}")
        if self.size is None:
            sizes = _sizes(digits)
            if self.has_length:
                write_zigzag(writer, sizes, keep)
            for place in reversed(range(len(digits))):
                _write_digit(writer, digits[place], np.clip(sizes - _DIGIT_BYTES * place, 0, _DIGIT_BYTES), keep)
            return
        sign = digits[-1] >> WORD_BITS - 1
        for place in reversed(range(-(-self.size // _DIGIT_BYTES))):
            word = digits[place] if place < len(digits) else sign
            _write_digit(writer, word, min(self.size - _DIGIT_BYTES * place, _DIGIT_BYTES), keep)


def _digits(array: pa.Array, keep: Mask | None) -> list[Int64Array]:
    """The unscaled numbers in base 2**64, the least significant digit first; 0 in rows outside ``keep``.

    The last digit is signed. Digits that no number needs are left out.
    """
    width = array.type.bit_width
    rows, size = len(array), width // 8
    kind = np.dtype(f"i{min(size, _DIGIT_BYTES)}")
    columns = max(1, size // _DIGIT_BYTES)
    data = np.frombuffer(array.buffers()[1], kind, rows * columns, array.offset * size) if rows else np.zeros(0, kind)
    digits = [each.astype(np.int64) for each in data.reshape(rows, columns).T]
    if keep is not None:
        digits = [digit & keep.view(np.int64) for digit in digits]
    while len(digits) > 1 and (digits[-1] == digits[-2] >> WORD_BITS - 1).all():
        digits.pop()
    return digits


def _exceeds(digits: list[Int64Array], limit: int) -> npt.NDArray[np.bool_]:
    """The rows with a number above ``limit``, which is not negative."""
    above = np.zeros(len(digits[0]), np.bool_)
    if limit >= 1 << WORD_BITS * len(digits) - 1:
        return above
    for place, digit in enumerate(digits):
        part = limit >> WORD_BITS * place & _DIGIT_MASK
        if place < len(digits) - 1:
            word = digit.view(np.uint64)
            above = (word > part) | (word == part) & above
        else:
            above = (digit > part) | (digit == part) & above
    return above


def _sizes(digits: list[Int64Array]) -> Int64Array:
    """The fewest bytes that hold each number and its sign (Java: ``BigInteger.toByteArray``): 1 for 127, 2 for 128, 1
    for -128."""
    sign = digits[-1] >> WORD_BITS - 1
    sizes = np.ones(len(sign), np.int64)
    for place, digit in enumerate(digits):
        word = (digit ^ sign).view(np.uint64)
        of_word = np.full(len(word), _DIGIT_BYTES * place + 1, np.int64)
        for bits in range(7, WORD_BITS, 8):
            of_word += word >> bits != 0
        sizes = np.where(word != 0, of_word, sizes)
    return sizes


def _write_digit(writer: RowWriter, digit: Int64Array, count: Int64Array | int, keep: Mask | None) -> None:
    """Writes the ``count`` low bytes of each digit, the most significant byte first."""
    bits: Words | int = count * 8 if isinstance(count, int) else (count * 8).view(np.uint64)
    words: Words = (digit.view(np.uint64) << (WORD_BITS - bits)).byteswap()
    write_words(writer, words, bits, count if isinstance(count, int) else _DIGIT_BYTES, keep)


_UUID_PATTERN = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"


@dataclass(frozen=True, slots=True)
class Uuid:
    """A UUID as a string, from a string."""

    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, _, _ = spans(array, keep)
        matches = pc.match_substring_regex(column, _UUID_PATTERN)
        writer.refuse(bits_of(matches, 1) == 0, self.path, array, "is not a UUID", keep)
        Text(self.path).write(writer, array, keep)
