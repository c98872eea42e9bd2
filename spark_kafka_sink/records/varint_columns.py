"""The varints of ``varints.py``, of many numbers at once."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.arrays import Int64Array, Integers, binary_array

Zigzagged: TypeAlias = npt.NDArray[np.uint64] | npt.NDArray[np.uint32]

TABLE_SIZE = 1 << 16


def zigzag(values: Integers) -> Zigzagged:
    """0, -1, 1, -2, … become 0, 1, 2, 3, …, of the same width."""
    numbers = values << 1
    numbers ^= values >> (8 * values.itemsize - 1)
    return numbers.view(np.uint32) if values.itemsize == 4 else numbers.view(np.uint64)


def varint_sizes(values: Integers) -> Int64Array:
    """The bytes of the varint of each value."""
    return _sizes(zigzag(values))


def encode_zigzagged(numbers: Zigzagged) -> pa.BinaryArray:
    """A column with the varint of each number that ``zigzag`` returned."""
    sizes = _sizes(numbers)
    left = sizes[:, None] - np.arange(int(sizes.max(initial=1)))
    shifts = 7 * np.arange(left.shape[1], dtype=np.uint64)
    groups = (numbers.astype(np.uint64)[:, None] >> shifts).astype(np.uint8) & np.uint8(0x7F)
    groups |= (left > 1).view(np.uint8) << np.uint8(7)
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return binary_array(offsets, groups[left > 0])


def _sizes(numbers: Zigzagged) -> Int64Array:
    sizes = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for bits in range(7, 64, 7):
        if not largest >> bits:
            break
        sizes += numbers >= numbers.dtype.type(1 << bits)
    return sizes


TABLE = encode_zigzagged(np.arange(TABLE_SIZE, dtype=np.uint64))
"""Slot ``z`` is the varint of zigzagged value ``z``."""
