"""The varints of ``varints.py``, of many numbers at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.arrays import Int64Array, Integers, binary_array

Zigzagged: TypeAlias = npt.NDArray[np.uint64] | npt.NDArray[np.uint32]

TABLE_END = 1 << 15
"""``TABLE`` has the varints of the numbers from ``-TABLE_END`` to ``TABLE_END - 1``."""


def zigzag(values: Integers) -> Zigzagged:
    """0, -1, 1, -2, … become 0, 1, 2, 3, …, of the same width."""
    numbers = values << 1
    numbers ^= values >> (8 * values.itemsize - 1)
    return numbers.view(np.uint32) if values.itemsize == 4 else numbers.view(np.uint64)


def bounds(values: Integers) -> tuple[int, int]:
    """The least and the greatest value; (0, 0) if there is none."""
    return (int(values.min()), int(values.max())) if len(values) else (0, 0)


def varint_sizes(values: Integers) -> Int64Array:
    """The bytes of the varint of each value."""
    least, most = bounds(values)
    if least < 0:  # the varint of a negative number is as long as that of its complement
        values, least, most = values ^ (values >> (8 * values.itemsize - 1)), 0, max(most, ~least)
    return _sizes(values, least, most, 6)


def encode_zigzagged(numbers: Zigzagged) -> pa.BinaryArray:
    """A column with the varint of each number that ``zigzag`` returned."""
    sizes = _sizes(numbers, 0, int(numbers.max(initial=0)), 7)
    left = sizes[:, None] - np.arange(int(sizes.max(initial=1)))
    shifts = 7 * np.arange(left.shape[1], dtype=np.uint64)
    groups = (numbers.astype(np.uint64)[:, None] >> shifts).astype(np.uint8) & np.uint8(0x7F)
    groups |= (left > 1).view(np.uint8) << np.uint8(7)
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return binary_array(offsets, groups[left > 0])


def _sizes(numbers: Integers | Zigzagged, least: int, most: int, bits: int) -> Int64Array:
    """The bytes of varints: one for up to ``bits`` bits of a number, one more for each seven bits more."""
    size = 1
    while least >> bits:
        size, bits = size + 1, bits + 7
    sizes = np.full(len(numbers), size, np.int64)
    while most >> bits:
        sizes += numbers >= numbers.dtype.type(1 << bits)
        bits += 7
    return sizes


TABLE = encode_zigzagged(zigzag(np.arange(-TABLE_END, TABLE_END)))
"""Slot ``TABLE_END + n`` is the varint of ``n``."""
