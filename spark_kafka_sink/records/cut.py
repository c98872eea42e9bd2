"""Cuts encoded records into smaller parts, record by record and without decoding keys, values and headers."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from spark_kafka_sink.records.sizes import encode_varint

_varint = lru_cache(maxsize=1 << 16)(encode_varint)


class RecordsPart(NamedTuple):
    """``rows`` encoded records; ``latest``: their largest timestamp delta, ms."""

    records: bytes
    rows: int
    latest: int


def cut_records(records: bytes, most: int) -> list[RecordsPart]:
    """Parts of at most ``most`` bytes, or of one record. Timestamp deltas stay, offset deltas begin at 0 in each part.

    Brokers accept uncompressed batches with any offset deltas and would serve wrong offsets.
    """
    parts: list[RecordsPart] = []
    chunks: list[bytes] = []
    start = size = count = latest = 0
    while start < len(records):
        length, start = _number(records, start)
        end = start + length
        timestamp, after_timestamp = _number(records, start + 1)  # behind the attributes
        _, after_offset = _number(records, after_timestamp)
        fixed = length - (after_offset - after_timestamp)
        offset = _varint(count)
        total = fixed + len(offset)
        if count and size + total + len(_varint(total)) > most:
            parts.append(RecordsPart(b"".join(chunks), count, latest))
            chunks, size, count, offset = [], 0, 0, _varint(0)
            total = fixed + len(offset)
        chunks += (_varint(total), records[start:after_timestamp], offset, records[after_offset:end])
        size += total + len(_varint(total))
        latest = max(latest, timestamp) if count else timestamp
        count += 1
        start = end
    parts.append(RecordsPart(b"".join(chunks), count, latest))
    return parts


def _number(data: bytes, start: int) -> tuple[int, int]:
    """The zigzag varint at ``start``, and where it ends."""
    byte = data[start]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), start + 1
    number, shift = byte & 0x7F, 7
    while True:
        start += 1
        byte = data[start]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), start + 1
        shift += 7
