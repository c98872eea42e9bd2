"""Unsigned varints of whole arrays of numbers (LEB128), as the words that ``row_writer.py`` and ``runs.py`` lay out."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.integer]
"""uint64. The first byte to write is the least significant."""

WORD_BITS: Final = 64
WORD_BYTES: Final = 8
_GROUP: Final = 7
_LOW_BITS: Final = WORD_BYTES * _GROUP
_SPREADS: Final = (
    (4, 0x00FFFFFFF0000000, (1 << 4) - 1),
    (2, 0x0FFFC0000FFFC000, (1 << 2) - 1),
    (1, 0x3F803F803F803F80, (1 << 1) - 1),
)
"""Spreads groups of 28, then 14, then 7 bits to 32, 16 and 8 bits.

For values of more bytes than the first number: the bits to shift left, and 2**distance - 1. A number plus these bits
times that factor has them shifted.
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
    """8 for each byte up to the last that is not 0, at least 8. The bytes have 7 bits.

    A float64 has the position of the highest bit in its exponent. Rounding carries at most into the eighth bit of the
    same byte.
    """
    np.bitwise_or(groups, 1, out=spare)
    bits = spare.view(np.int64).astype(np.float64).view(np.uint64)
    bits >>= _MANTISSA
    bits += 1
    bits &= _WHOLE_BYTES
    bits -= _ONE_BYTE - 8
    return bits
