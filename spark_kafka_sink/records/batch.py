"""The header of a record batch v2 (Java: ``DefaultRecordBatch``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

HEADER_SIZE = 61
CRC_END = 21
"""The CRC covers all bytes after it: 40 bytes of the header, then the records."""

MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_HEAD = struct.Struct(">qiibI")
_TAIL = struct.Struct(">hiqqqhii")
_LENGTH_START = 12
_NO_LEADER_EPOCH = -1


class BatchHeader(NamedTuple):
    """The header fields that a producer chooses; offset, length and CRC follow from the records.

    ``attributes``: codec id, plus ``TRANSACTIONAL`` and ``CONTROL``. Timestamps in epoch ms. Without idempotence the
    last three fields are -1.
    """

    attributes: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
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
    return _HEAD.pack(0, size, _NO_LEADER_EPOCH, MAGIC, crc) + tail
