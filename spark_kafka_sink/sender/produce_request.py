"""The Produce request around record batches: the one message of the hot path.

Written by hand because kio would copy the records; its buffers are sent as they are.
Versions 9 to 12: every broker from 2.8 on speaks one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from spark_kafka_sink.accumulator.producer_batch import Buffer, ProducerBatch
from spark_kafka_sink.network.codec import PRODUCE_VERSIONS, CompletionHandler, Request, request_header
from spark_kafka_sink.sender.produce_response import read_response

PRODUCE = 0
_NO_TAGS = b"\0"
_NULL_STRING = b"\0"
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """``acks`` -1, 0 or 1; ``timeout_ms`` is what the broker may wait for replicas (request.timeout.ms)."""

    acks: int
    timeout_ms: int


def produce_request(
    batches: Sequence[ProducerBatch],
    settings: ProduceSettings,
    on_complete: CompletionHandler,
    versions: tuple[int, int] = PRODUCE_VERSIONS,
    transactional_id: str | None = None,
) -> Request:
    """Of stamped batches, one for a partition at most. The response's body is a ``ProduceResponse``."""
    opening = _opening(settings, transactional_id)
    return Request(
        api_key=PRODUCE,
        build=lambda version, correlation_id, client_id: produce_frame(
            batches, opening, version, correlation_id, client_id
        ),
        versions=versions,
        parse=read_response,
        on_complete=on_complete,
        expects_response=settings.acks != 0,
    )


@lru_cache(4096)
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
    batches: Sequence[ProducerBatch], opening: bytes, version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """A whole frame: size, header and body, which begins with ``opening``; payloads by reference."""
    by_topic: dict[str, list[ProducerBatch]] = {}
    for batch in batches:
        by_topic.setdefault(batch.partition.topic, []).append(batch)
    small = [opening, compact(len(by_topic))]
    body: list[Buffer] = []
    for topic, group in by_topic.items():
        small += compact_string(topic), compact(len(group))
        for batch in group:
            assert batch.header is not None
            assert batch.payload is not None
            small += _INDEX.pack(batch.partition.partition), compact(batch.size), batch.header
            body.append(b"".join(small))
            body += batch.payload
            small = [_NO_TAGS]
        small.append(_NO_TAGS)
    small.append(_NO_TAGS)
    body.append(b"".join(small))
    head = request_header(PRODUCE, version, correlation_id, client_id, sum(map(len, body)), flexible=True)
    return [head, *body]


@lru_cache(16)
def _opening(settings: ProduceSettings, transactional_id: str | None) -> bytes:
    name = _NULL_STRING if transactional_id is None else compact_string(transactional_id)
    return name + _ACKS_AND_TIMEOUT.pack(settings.acks, settings.timeout_ms)
