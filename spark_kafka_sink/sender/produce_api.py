"""The Produce API, versions 9 to 12; every broker from 2.8 on supports one of them.

Written and read by hand: kio would copy the records of a request, and its entities cost as much CPU as all other work
for a response.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial.errors import SerialError
from kio.serial.readers import read_unsigned_varint

from spark_kafka_sink.accumulator.producer_batch import NO_TIMESTAMP, Buffer, ProducerBatch
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.codec import (
    PRODUCE_VERSIONS,
    CompletionHandler,
    Request,
    decode_response,
    request_header,
    response_type,
)

PRODUCE = 0
NO_ERROR = ErrorCode.none
"""A look-up of an Enum member per batch is felt."""

_NO_TAGS = b"\0"
_NULL_STRING = b"\0"
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX = struct.Struct(">i")
_SUCCESS = struct.Struct(">ihqqqBBB")  # index, error, base offset, append time, start offset; errors, message, tags
_END = struct.Struct(">iB")  # throttle time, tags
_NO_THROTTLE = timedelta(0)


class PartitionResponse(NamedTuple):
    """``log_append_time`` in epoch ms, ``NO_TIMESTAMP`` without LogAppendTime. ``leader``, ``leader_epoch``: the new
    leader, if the broker no longer leads the partition and says so (KIP-951, from version 10 on).
    """

    base_offset: int
    log_append_time: int = NO_TIMESTAMP
    error_code: ErrorCode = NO_ERROR
    error_message: str | None = None
    leader: Node | None = None
    leader_epoch: int = -1


class ProduceResponse(NamedTuple):
    """``partitions`` by (topic, partition), so a ``TopicPartition`` is a key."""

    partitions: Mapping[tuple[str, int], PartitionResponse]
    throttle_time: timedelta


class ProduceRequest(Request):
    """A request with stamped batches, at most one per partition. The response's body is a ``ProduceResponse``."""

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        config: ProducerConfig,
        on_complete: CompletionHandler,
        versions: tuple[int, int] = PRODUCE_VERSIONS,
        transactional_id: str | None = None,
    ) -> None:
        super().__init__(PRODUCE, versions, on_complete, expects_response=config.acks != 0)
        self._batches = batches
        self._first_fields = _first_fields(config.acks, config.request_timeout_ms, transactional_id)

    def build(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        return _frame(self._batches, self._first_fields, version, correlation_id, client_id)

    def parse(self, version: int, data: memoryview) -> ProduceResponse:
        return read_response(version, data)


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


@lru_cache(16)
def _first_fields(acks: int, timeout_ms: int, transactional_id: str | None) -> bytes:
    name = _NULL_STRING if transactional_id is None else compact_string(transactional_id)
    return name + _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)


def _frame(
    batches: Sequence[ProducerBatch], first_fields: bytes, version: int, correlation_id: int, client_id: str
) -> list[Buffer]:
    """Size, header and body; payloads by reference."""
    by_topic: dict[str, list[ProducerBatch]] = {}
    for batch in batches:
        by_topic.setdefault(batch.partition.topic, []).append(batch)
    small = [first_fields, compact(len(by_topic))]
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


def read_response(version: int, data: memoryview) -> ProduceResponse:
    """Decode the bytes after the correlation id. Raises ``NetworkError`` if they are no response."""
    return _read_successes(data) or _read_entity(version, data)


def _read_successes(data: memoryview) -> ProduceResponse | None:
    """None unless every partition succeeded."""
    partitions: dict[tuple[str, int], PartitionResponse] = {}
    responses = 0
    try:
        topics, size = read_unsigned_varint(data, 1)
        at = 1 + size
        if not topics:
            return None
        for _ in range(topics - 1):
            length, size = read_unsigned_varint(data, at)
            at += size + length - 1
            topic = str(data[at - length + 1 : at], "utf-8")
            count, size = read_unsigned_varint(data, at)
            at += size
            if not length or not count:
                return None
            for _ in range(count - 1):
                index, code, offset, appended, _, errors, message, tags = _SUCCESS.unpack_from(data, at)
                if code or errors != 1 or message or tags:
                    return None
                partitions[topic, index] = PartitionResponse(offset, appended)
                responses += 1
                at += _SUCCESS.size
            at += 1
            if data[at - 1]:
                return None
        throttle_ms, tags = _END.unpack_from(data, at)
    except (SerialError, ValueError, IndexError, struct.error):
        return None
    if data[0] or tags or at + _END.size != len(data) or responses != len(partitions):
        return None
    return ProduceResponse(partitions, timedelta(milliseconds=throttle_ms) if throttle_ms else _NO_THROTTLE)


def _read_entity(version: int, data: memoryview) -> ProduceResponse:
    body: Any = decode_response(data, response_type("produce", version))
    nodes = {each.node_id: each for each in getattr(body, "node_endpoints", ())}
    pairs = [
        ((topic.name, each.index), _partition_response(each, nodes))
        for topic in body.responses
        for each in topic.partition_responses
    ]
    partitions = dict(pairs)
    if len(partitions) != len(pairs):
        raise NetworkError("A Produce response has one partition twice")
    return ProduceResponse(partitions, body.throttle_time)


def _partition_response(entity: Any, nodes: Mapping[int, Any]) -> PartitionResponse:
    appended = entity.log_append_time
    leader = getattr(entity, "current_leader", None)
    endpoint = nodes.get(leader.leader_id) if leader is not None else None
    return PartitionResponse(
        base_offset=entity.base_offset,
        log_append_time=NO_TIMESTAMP if appended is None else int(appended.timestamp() * 1000),
        error_code=entity.error_code,
        error_message=entity.error_message,
        leader=None if endpoint is None else Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack),
        leader_epoch=-1 if leader is None else leader.leader_epoch,
    )
