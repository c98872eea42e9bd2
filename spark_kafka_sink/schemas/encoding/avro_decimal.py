"""Decimals as Avro's bytes and fixed: big-endian two's complement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import Int64Array
from spark_kafka_sink.schemas.encoding.row_writer import WORD_BITS, Mask, RowWriter, Words
from spark_kafka_sink.schemas.encoding.varints import write_zigzag

_BYTES = WORD_BITS // 8
_ALL_BITS = (1 << WORD_BITS) - 1


@dataclass(frozen=True, slots=True)
class Decimal:
    """``size``: of the fixed; None: bytes, as few as hold the number. ``rescaled``: the type with another scale.

    ``has_length``: of bytes; false: as Confluent's serializers write them at the top.
    """

    path: str
    schema: str
    precision: int
    size: int | None
    rescaled: pa.DataType | None
    has_length: bool = True

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        digits = _digits(array if self.rescaled is None else array.cast(self.rescaled), keep)
        largest = 10**self.precision - 1
        bad = _exceeds(digits, largest) | _exceeds([~each for each in digits], largest - 1)
        if bad.any():
            writer.refuse(bad, self.path, array, f"does not fit {self.schema}")
        if self.size is None:
            sizes = _sizes(digits)
            if self.has_length:
                write_zigzag(writer, sizes, keep)
            for place in reversed(range(len(digits))):
                _write(writer, digits[place], np.clip(sizes - _BYTES * place, 0, _BYTES), keep)
            return
        sign = digits[-1] >> WORD_BITS - 1
        for place in reversed(range(-(-self.size // _BYTES))):
            word = digits[place] if place < len(digits) else sign
            _write(writer, word, min(self.size - _BYTES * place, _BYTES), keep)


def _digits(array: pa.Array, keep: Mask | None) -> list[Int64Array]:
    """The unscaled numbers in base 2 to the 64th, the least significant digit first; 0 in rows outside ``keep``.

    The last digit is signed. Only digits that a number needs.
    """
    width = array.type.bit_width
    rows, size = len(array), width // 8
    kind = np.dtype(f"i{min(size, _BYTES)}")
    columns = max(1, size // _BYTES)
    data = np.frombuffer(array.buffers()[1], kind, rows * columns, array.offset * size) if rows else np.zeros(0, kind)
    digits = [each.astype(np.int64) for each in data.reshape(rows, columns).T]
    if keep is not None:
        digits = [each & keep.view(np.int64) for each in digits]
    while len(digits) > 1 and (digits[-1] == digits[-2] >> WORD_BITS - 1).all():
        digits.pop()
    return digits


def _exceeds(digits: list[Int64Array], limit: int) -> npt.NDArray[np.bool_]:
    """The rows with a number above ``limit``, which is not negative."""
    above = np.zeros(len(digits[0]), np.bool_)
    if limit >= 1 << WORD_BITS * len(digits) - 1:
        return above
    for place, digit in enumerate(digits):
        part = limit >> WORD_BITS * place & _ALL_BITS
        if place < len(digits) - 1:
            word = digit.view(np.uint64)
            above = (word > part) | (word == part) & above
        else:
            above = (digit > part) | (digit == part) & above
    return above


def _sizes(digits: list[Int64Array]) -> Int64Array:
    """The fewest bytes that hold each number and its sign (Java: ``BigInteger.toByteArray``)."""
    sign = digits[-1] >> WORD_BITS - 1
    sizes = np.ones(len(sign), np.int64)
    for place, digit in enumerate(digits):
        word = (digit ^ sign).view(np.uint64)
        of_word = np.full(len(word), _BYTES * place + 1, np.int64)
        for bits in range(7, WORD_BITS, 8):
            of_word += word >> bits != 0
        sizes = np.where(word != 0, of_word, sizes)
    return sizes


def _write(writer: RowWriter, digit: Int64Array, count: Int64Array | int, keep: Mask | None) -> None:
    """The ``count`` low bytes of each digit, the most significant first."""
    bits: Words | int = count * 8 if isinstance(count, int) else (count * 8).view(np.uint64)
    words: Words = (digit.view(np.uint64) << (WORD_BITS - bits)).byteswap()
    if keep is None:
        writer.words(words, bits, WORD_BITS if not isinstance(bits, int) else bits)
    else:
        writer.words(words & keep, keep & bits, WORD_BITS if not isinstance(bits, int) else bits)
