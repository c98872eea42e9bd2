"""Varints as words of ``RowWriter``: all values of a column at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.sizes import zigzag
from spark_kafka_sink.schemas.encoding.row_writer import WORD_BITS, Mask, RowWriter, Words

_GROUP = 7
_WORD_BYTES = WORD_BITS // 8
_WORD_VALUE_BITS = _WORD_BYTES * _GROUP
_SPREADS = (
    (4, 0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4),
    (2, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
    (1, 0x007F007F007F007F, 0x3F803F803F803F80, 1),
)
"""Groups of 28, 14, then 7 bits to 32, 16, 8 bits.

In values of more bytes than the first number says: which bits stay, which are shifted, by how much.
"""
_ONES = 0x0101010101010101
_MORE = 0x80 * _ONES
_NOT_ZERO = 0x7F * _ONES + 1
"""Added to bytes of 7 bits: sets the highest bit of those that are not 0, and of the first."""


def write_zigzag(writer: RowWriter, numbers: npt.NDArray[np.int64], keep: Mask | None) -> None:
    """A signed varint (Avro's int and long) per row of ``keep``."""
    write_varints(writer, zigzag(numbers).view(np.uint64), keep)


def write_varints(writer: RowWriter, numbers: Words, keep: Mask | None, tag: bytes = b"") -> None:
    """``tag`` and an unsigned varint per row of ``keep``."""
    if keep is not None:
        numbers = numbers & keep
    size = max(1, -(-int(numbers.max(initial=0)).bit_length() // _GROUP))
    if len(tag) + size > _WORD_BYTES:
        writer.fixed(tag, keep)
        tag = b""
    if size <= _WORD_BYTES:
        write_words(writer, *_encoded(numbers, size), size, keep, tag)
        return
    low, high = numbers & ((1 << _WORD_VALUE_BITS) - 1), numbers >> _WORD_VALUE_BITS
    goes_on = (high != 0).astype(np.uint64)
    write_words(writer, *_encoded(low, _WORD_BYTES, goes_on), _WORD_BYTES, keep)
    ten = high >> _GROUP
    writer.words(high | (ten << 8), (goes_on + ten) * 8, 16)


def write_words(
    writer: RowWriter, words: Words, bits: Words | int, size: int, keep: Mask | None, tag: bytes = b""
) -> None:
    """``tag`` and the low ``bits[i]`` bits of ``words[i]``, in all at most 8 bytes, per row of ``keep``."""
    before = 8 * len(tag)
    if before:
        words = words << before
        words |= int.from_bytes(tag, "little")
        bits = bits + before
    if keep is not None:
        words, bits = words & keep, bits & keep
    writer.words(words, bits, before + 8 * size)


def _encoded(numbers: Words, size: int, goes_on: Words | None = None) -> tuple[Words, Words | int]:
    """Varints of up to ``size`` bytes, at most 8, and how many bits each takes. ``goes_on``: 1 where bytes follow."""
    if size == 1:
        return numbers, 8
    groups = numbers
    for above, stay, go, by in _SPREADS:
        if size > above:
            shifted = groups & go
            shifted <<= by
            groups = groups & stay
            groups |= shifted
    # Every byte gets the bits of those behind it: it is 0 only where the number has ended.
    filled = groups if goes_on is None else groups | (goes_on << (WORD_BITS - 2))
    for by in (8, 16, 32):
        if 8 * size > by:
            filled = filled | (filled >> by)
    filled += _NOT_ZERO
    filled &= _MORE
    groups |= filled >> 8
    if goes_on is not None:
        groups |= goes_on << (WORD_BITS - 1)
    filled >>= 4
    filled *= _ONES
    filled >>= WORD_BITS - 8
    return groups, filled
