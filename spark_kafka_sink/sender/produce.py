"""The Produce request around record batches, and its answer: the one message of the hot path.

Written by hand because kio would copy the records; its buffers are sent as they are. Answers are kio's entities.
Versions 9 to 12: every broker from 2.8 on speaks one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spark_kafka_sink.accumulator.batch import Buffer, StampedBatch
from spark_kafka_sink.network.codec import request_header

PRODUCE = 0
VERSIONS = (9, 12)
_NO_TAGS = b"\0"
_NULL_STRING = b"\0"
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """``acks`` -1, 0 or 1; ``timeout_ms`` is what the broker may wait for replicas (request.timeout.ms)."""

    acks: int
    timeout_ms: int
    transactional_id: str | None = None


def compact(length: int) -> bytes:
    """The length prefix of flexible versions: an unsigned varint of length + 1."""
    value = length + 1
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80)) + compact((value >> 14) - 1)


@lru_cache(1024)
def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return compact(len(encoded)) + encoded


def produce_frame(
    batches: Sequence[StampedBatch], settings: ProduceSettings, version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """A whole frame: size, header and body, payloads by reference. A partition stands in ``batches`` once at most."""
    by_topic: dict[str, list[StampedBatch]] = {}
    for batch in batches:
        by_topic.setdefault(batch.partition.topic, []).append(batch)
    transactional_id = settings.transactional_id
    small = bytearray(_NULL_STRING if transactional_id is None else compact_string(transactional_id))
    small += _ACKS_AND_TIMEOUT.pack(settings.acks, settings.timeout_ms)
    small += compact(len(by_topic))
    body: list[Buffer] = []
    for topic, group in by_topic.items():
        small += compact_string(topic) + compact(len(group))
        for batch in group:
            sealed = batch.sealed
            small += _INDEX.pack(sealed.completion.partition.partition) + compact(sealed.size) + batch.header
            body.append(bytes(small))
            body.extend(sealed.payload)
            small = bytearray(_NO_TAGS)
        small += _NO_TAGS
    body.append(bytes(small + _NO_TAGS))
    head = request_header(PRODUCE, version, correlation_id, client_id, sum(map(len, body)), flexible=True)
    body[0] = head + body[0]
    return body
