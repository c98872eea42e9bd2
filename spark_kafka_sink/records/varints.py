"""Zigzag varints (Protocol Buffers' ``sint``; Java: ``ByteUtils.writeVarint`` / ``writeVarlong``) over columns."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.arrow import binary_array

Int64Array = npt.NDArray[np.int64]
Integers: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Zigzagged: TypeAlias = npt.NDArray[np.uint64] | npt.NDArray[np.uint32]

TABLE_SIZE = 1 << 16


def encode_varint(value: int) -> bytes:
    """The varint of one int64: 1 to 10 bytes."""
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def varint_size(value: int) -> int:
    """Bytes that ``encode_varint(value)`` takes."""
    return len(encode_varint(value))


def zigzag(values: Integers) -> Zigzagged:
    """0, -1, 1, -2, … become 0, 1, 2, 3, …: what the varint then holds in groups of 7 bits; as wide as they were."""
    numbers = values << 1
    numbers ^= values >> (8 * values.itemsize - 1)
    return numbers.view(np.uint32) if values.itemsize == 4 else numbers.view(np.uint64)


def varint_sizes(values: Integers) -> Int64Array:
    """Bytes that the varint of each value takes, shape as given."""
    return _sizes(zigzag(values))


def encode_zigzagged(numbers: Zigzagged) -> pa.BinaryArray:
    """The varint of each number that went through ``zigzag``, one slot each."""
    sizes = _sizes(numbers)
    places = np.arange(10)
    wide = numbers.astype(np.uint64)
    groups = (wide[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    groups[places < sizes[:, None] - 1] |= 0x80
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = groups[places < sizes[:, None]]
    return binary_array(offsets, data)


def _sizes(numbers: Zigzagged) -> Int64Array:
    sizes = np.ones(len(numbers), np.int64)
    largest = int(numbers.max(initial=0))
    for bits in range(7, 64, 7):
        if not largest >> bits:
            break
        sizes += numbers >= numbers.dtype.type(1 << bits)
    return sizes


TABLE = encode_zigzagged(np.arange(TABLE_SIZE, dtype=np.uint64))
"""Slot ``z`` is the varint whose zigzagged value is ``z``."""
