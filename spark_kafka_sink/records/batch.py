"""The header of a record batch v2 (Java: ``DefaultRecordBatch``), and its records, one at a time.

The file imports neither numpy nor Arrow, which takes 0.2 s: the commit of an exactly-once write needs neither.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from spark_kafka_sink.common.model import NO_IDENTITY, NO_LEADER_EPOCH
from spark_kafka_sink.records.varints import cached_varint, encode_varint

CRC_END = 21
"""The end of the CRC in a batch. It covers all bytes after it: 40 bytes of the header, then the records."""

MAGIC = 2
NO_SEQUENCE = -1

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

NO_ATTRIBUTES = b"\0"
NULL = encode_varint(-1)
NO_HEADERS = encode_varint(0)

_HEAD = struct.Struct(">qiibI")
_TAIL = struct.Struct(">hiqqqhii")
_LENGTH_START = 12

HEADER_SIZE = _HEAD.size + _TAIL.size
"""The bytes of a batch's header, 61."""


class BatchHeader(NamedTuple):
    """The header fields that a producer chooses; offset, length and CRC follow from the records.

    ``attributes``: the codec id, plus ``TRANSACTIONAL`` and ``CONTROL``. Timestamps are epoch ms. Without idempotence
    the last three fields are -1.
    """

    attributes: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = NO_IDENTITY.producer_id
    producer_epoch: int = NO_IDENTITY.epoch
    base_sequence: int = NO_SEQUENCE


def stamp_header(header: BatchHeader, segments: Sequence[bytes | memoryview]) -> bytes:
    """The 61 bytes in front of ``segments``, the (compressed) records.

    Base offset 0, leader epoch -1: the broker sets both. The records' offset deltas must run from 0 to
    ``record_count - 1``.
    """
    attributes, count, *others = header
    tail = _TAIL.pack(attributes, count - 1, *others, count)
    crc = crc32c(tail)
    size = HEADER_SIZE - _LENGTH_START
    for segment in segments:
        crc = crc32c(segment, crc)
        size += len(segment)
    return _HEAD.pack(0, size, NO_LEADER_EPOCH, MAGIC, crc) + tail


def encode_record(
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    timestamp_delta: int = 0,
    headers: bytes = NO_HEADERS,
) -> bytes:
    """The bytes that ``encode_records`` gives the record (``encode.py`` has an example). ``headers``: the encoded
    section."""
    pieces = [NO_ATTRIBUTES, cached_varint(timestamp_delta), cached_varint(offset_delta)]
    for data in (key, value):
        pieces += (NULL,) if data is None else (cached_varint(len(data)), data)
    pieces.append(headers)
    body = b"".join(pieces)
    return cached_varint(len(body)) + body
