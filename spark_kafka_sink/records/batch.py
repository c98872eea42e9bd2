"""The header of a record batch v2 (Java: ``DefaultRecordBatch``)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

HEADER_SIZE = 61
CRC_END = 21
"""The CRC covers what follows it: a tail of ``HEADER_SIZE - CRC_END`` = 40 bytes of the header, then the records."""

MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_HEAD = struct.Struct(">qiibI")
_TAIL = struct.Struct(">hiqqqhii")
_LENGTH_START = 12
_NO_LEADER_EPOCH = -1


class BatchHeader(NamedTuple):
    """What a producer decides of a batch; offset, length and CRC follow from the rest.

    ``attributes``: codec id, with ``TRANSACTIONAL`` and ``CONTROL`` added. Timestamps in epoch ms. A batch without
    idempotence has the three ``NO_…`` values.
    """

    attributes: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


def stamp_header(header: BatchHeader, segments: Sequence[bytes | memoryview]) -> bytes:
    """The 61 bytes that go before ``segments``, the (compressed) records in as many pieces as they come in.

    Base offset 0 and no leader epoch: the broker sets both. Offset deltas must run from 0 to ``record_count - 1``.
    """
    tail = _TAIL.pack(
        header.attributes,
        header.record_count - 1,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    crc = crc32c(tail)
    size = HEADER_SIZE - _LENGTH_START
    for segment in segments:
        crc = crc32c(segment, crc)
        size += len(segment)
    return _HEAD.pack(0, size, _NO_LEADER_EPOCH, MAGIC, crc) + tail
