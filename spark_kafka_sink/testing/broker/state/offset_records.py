"""Offset commits as records of ``__consumer_offsets`` (Kafka: ``OffsetCommitKey``, ``OffsetCommitValue``).

Key version 1: group, topic, partition. Value version 3: offset, leader epoch, metadata, time of the commit; version 4,
since Kafka 4.1, is the same in the flexible format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.common.model import NO_IDENTITY, NO_LEADER_EPOCH, TopicPartition
from spark_kafka_sink.records.batch import BatchHeader, encode_record, stamp_header
from spark_kafka_sink.records.varints import encode_unsigned_varint

_KEY_VERSION: Final = struct.pack(">h", 1)
_FLEXIBLE_SINCE: Final = 4
_NO_TAGS: Final = b"\0"
_BASE_SEQUENCE: Final = 0


def offset_key(group: str, partition: TopicPartition) -> bytes:
    return _KEY_VERSION + _string(group) + _string(partition.topic) + struct.pack(">i", partition.partition)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, with what the committer attached."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


def offset_value(version: int, committed: CommittedOffset, now_ms: int) -> bytes:
    start = struct.pack(">hqi", version, committed.offset, committed.leader_epoch)
    committed_at = struct.pack(">q", now_ms)
    if version < _FLEXIBLE_SINCE:
        return start + _string(committed.metadata) + committed_at
    metadata = committed.metadata.encode()
    return start + encode_unsigned_varint(len(metadata) + 1) + metadata + committed_at + _NO_TAGS


def offset_batch(
    records: Iterable[tuple[bytes, bytes]], now_ms: int, attributes: int = 0, producer: tuple[int, int] = NO_IDENTITY
) -> bytes:
    """A record batch of keys and values, all at ``now_ms``; a coordinator's batches all have sequence 0."""
    encoded = [encode_record(delta, key, value) for delta, (key, value) in enumerate(records)]
    header = BatchHeader(attributes, len(encoded), now_ms, now_ms, *producer, _BASE_SEQUENCE)
    return stamp_header(header, encoded) + b"".join(encoded)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded
