"""Varints as words of ``RowWriter``: all values of a column at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.encoding.row_writer import WORD_BITS, Mask, RowWriter, Words
from spark_kafka_sink.records.sizes import zigzag

_GROUP = 7
_TABLE_BITS = 2 * _GROUP
_SPREADS = (
    (0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4),
    (0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
    (0x007F007F007F007F, 0x3F803F803F803F80, 1),
)
"""Groups of 28, 14, then 7 bits to 32, 16, 8 bits: which bits stay, which are shifted, by how much."""
_MORE = 0x8080808080808080
_WORD_VALUE_BITS = WORD_BITS // 8 * _GROUP


def write_zigzag(writer: RowWriter, numbers: npt.NDArray[np.int64], keep: Mask | None) -> None:
    """A signed varint (Avro's int and long) per row of ``keep``."""
    write_varints(writer, zigzag(numbers).view(np.uint64), keep)


def write_varints(writer: RowWriter, numbers: Words, keep: Mask | None) -> None:
    """An unsigned varint per row of ``keep``."""
    if keep is not None:
        numbers = numbers & keep
    largest = int(numbers.max(initial=0)).bit_length()
    if largest <= _GROUP:
        writer.words(numbers, 8 if keep is None else keep & 8, 8)
        return
    if largest <= _TABLE_BITS:
        writer.words(*_two_bytes(numbers, keep), 16)
        return
    smallest = int((numbers if keep is None else numbers | ~keep).min()).bit_length()
    sizes = range(_size(smallest), _size(largest))
    bits: Words | int = 8 * sizes.start
    for size in sizes:
        bits = bits + ((numbers >> (_GROUP * size)) != 0).astype(np.uint64) * 8
    if keep is not None:
        bits = keep & bits
    most = min(8 * sizes.stop, WORD_BITS)
    if largest <= _WORD_VALUE_BITS:
        writer.words(_spread(numbers) | _continuations(bits, keep), bits, most)
        return
    low, high = numbers & ((1 << _WORD_VALUE_BITS) - 1), numbers >> _WORD_VALUE_BITS
    low_bits = np.minimum(np.broadcast_to(np.asarray(bits, np.uint64), len(numbers)), WORD_BITS)
    goes_on = (high != 0).astype(np.uint64)
    writer.words(_spread(low) | _continuations(low_bits, keep) | (goes_on << 63), low_bits, WORD_BITS)
    ten = (high >> _GROUP) & 1
    writer.words(high | (ten << 8), (goes_on + ten) * 8, 16)


def _two_bytes(numbers: Words, keep: Mask | None) -> tuple[Words, Words]:
    long = (numbers >= 1 << _GROUP).astype(np.uint64)
    bits = (long << 3) + 8
    return (numbers & 0x7F) | ((numbers & 0x3F80) << 1) | (long << 7), bits if keep is None else bits & keep


def _size(bit_length: int) -> int:
    return max(1, -(-bit_length // _GROUP))


def _spread(numbers: Words) -> Words:
    """Groups of 7 bits, a byte each."""
    for stay, go, by in _SPREADS:
        shifted = numbers & go
        shifted <<= by
        numbers = numbers & stay
        numbers |= shifted
    return numbers


def _continuations(bits: Words | int, keep: Mask | None) -> Words | int:
    """The bit that says that another byte follows, in all bytes of a word but the last."""
    if isinstance(bits, int):
        more = _MORE & ((1 << bits) - 1 >> 8)
        return more if keep is None else keep & more
    return (((np.uint64(1) << bits) - 1) >> 8) & _MORE
