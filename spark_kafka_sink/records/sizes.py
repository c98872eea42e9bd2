"""Varints, and the sizes of records before they are encoded.

Varints are zigzag-encoded (Protocol Buffers' ``sint``; Java: ``ByteUtils.writeVarint`` and ``writeVarlong``), unless
their name says unsigned (``ByteUtils.writeUnsignedVarint``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import (
    Int32Array,
    Int64Array,
    Integers,
    Order,
    RecordColumns,
    binary_array,
    slot_lengths,
)

Zigzagged: TypeAlias = npt.NDArray[np.uint64] | npt.NDArray[np.uint32]

MAX_RECORD_OVERHEAD = 21
"""Java's ``DefaultRecord.MAX_RECORD_OVERHEAD``: length 5, attributes 1, timestamp delta 10, offset delta 5."""

SMALLEST_RECORD = 7
"""Bytes of an encoded record without key, value and headers."""

TABLE_SIZE = 1 << 16


def encode_varint(value: int) -> bytes:
    """The varint of one int64: 1 to 10 bytes."""
    return encode_unsigned_varint((value << 1) ^ (value >> 63))


def encode_unsigned_varint(value: int) -> bytes:
    """The varint of a number that is not negative, without zigzag."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint_size(value: int) -> int:
    """``len(encode_varint(value))``."""
    return max(1, (((value << 1) ^ (value >> 63)).bit_length() + 6) // 7)


def zigzag(values: Integers) -> Zigzagged:
    """0, -1, 1, -2, … become 0, 1, 2, 3, …, of the same width."""
    numbers = values << 1
    numbers ^= values >> (8 * values.itemsize - 1)
    return numbers.view(np.uint32) if values.itemsize == 4 else numbers.view(np.uint64)


def varint_sizes(values: Integers) -> Int64Array:
    """Bytes of the varint of each value."""
    return _sizes(zigzag(values))


def encode_zigzagged(numbers: Zigzagged) -> pa.BinaryArray:
    """The varint of each number that ``zigzag`` returned, a slot each."""
    sizes = _sizes(numbers)
    places = np.arange(10)
    groups = (numbers.astype(np.uint64)[:, None] >> (7 * places).astype(np.uint64)).astype(np.uint8) & np.uint8(0x7F)
    groups[places < sizes[:, None] - 1] |= 0x80
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return binary_array(offsets, groups[places < sizes[:, None]])


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


@dataclass(frozen=True, slots=True)
class FieldLengths:
    """Bytes of each row's fields.

    ``key`` and ``value``: -1 where null, None for an absent column. ``payload``: all fields with their length varints
    and the header count (Java: ``DefaultRecord.sizeOf``).
    """

    key: Int32Array | None
    value: Int32Array | None
    payload: Int64Array

    @classmethod
    def of(cls, columns: RecordColumns) -> FieldLengths:
        key, value = (None if each is None else slot_lengths(each) for each in (columns.key, columns.value))
        payload = np.full(len(columns), columns.headers is None, np.int64)
        for lengths in (key, value):
            payload += 1 if lengths is None else field_sizes(lengths)
        if columns.headers is not None:
            payload += slot_lengths(columns.headers)
        return cls(key, value, payload)

    @classmethod
    def of_values(cls, lengths: Int32Array) -> FieldLengths:
        """The lengths of rows that have values of these lengths, null keys and no headers."""
        null_key_and_no_headers = 2
        return cls(None, lengths, field_sizes(lengths) + null_key_and_no_headers)

    def slice(self, start: int, end: int) -> FieldLengths:
        """Rows ``start`` to ``end - 1``."""
        key, value = (None if each is None else each[start:end] for each in (self.key, self.value))
        return FieldLengths(key, value, self.payload[start:end])

    def take(self, order: Order) -> FieldLengths:
        key, value = (None if each is None else each[order] for each in (self.key, self.value))
        return FieldLengths(key, value, self.payload[order])


def field_sizes(lengths: Int32Array) -> Int64Array:
    """Bytes of fields of these lengths (-1: null) with their length varints."""
    return varint_sizes(lengths) + np.maximum(lengths, 0)


def cumulated(sizes: Int64Array) -> Sequence[int]:
    """Bytes of the first 0, 1, …, n rows: ``n + 1`` entries."""
    cumulative = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=cumulative[1:])
    return cumulative.data


def record_size_bounds(lengths: FieldLengths, delta_bound: int, timestamp_bound_bytes: int) -> Int64Array:
    """An upper bound of each encoded record, its length varint included.

    Holds for offset deltas from 0 to ``delta_bound`` and for timestamp deltas whose varints take at most
    ``timestamp_bound_bytes`` (10 holds for all).
    """
    bodies = lengths.payload + (1 + timestamp_bound_bytes + varint_size(delta_bound))
    return bodies + varint_sizes(bodies)


def one_record_size_bound(header_bytes: int, fields: Sequence[bytes | None], limit: int, linger_ms: float) -> int:
    """``record_size_bounds`` of a record sent now. ``header_bytes``: of the header section; ``limit``: of its batch."""
    body = (
        _payload(header_bytes, fields)
        + 1
        + varint_size(int(2 * linger_ms) + 50)
        + varint_size(limit // SMALLEST_RECORD)
    )
    return body + varint_size(body)


def _payload(header_bytes: int, fields: Sequence[bytes | None]) -> int:
    """The payload as in ``FieldLengths``, of a key and a value in ``fields``."""
    return header_bytes + sum(1 if each is None else varint_size(len(each)) + len(each) for each in fields)


def one_java_size_estimate(header_bytes: int, fields: Sequence[bytes | None]) -> int:
    """``java_size_estimate`` of one record, which may be larger than a column holds."""
    return _payload(header_bytes, fields) + HEADER_SIZE + MAX_RECORD_OVERHEAD


def java_size_estimate(lengths: FieldLengths) -> Int64Array:
    """The size that Java's producer compares with ``max.request.size``: an uncompressed batch of this record alone.

    Source: ``AbstractRecords.estimateSizeInBytesUpperBound``.
    """
    return lengths.payload + (HEADER_SIZE + MAX_RECORD_OVERHEAD)
