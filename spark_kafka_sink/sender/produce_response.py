"""The answer to a Produce request, versions 9 to 12, as both producers look at it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial.errors import SerialError
from kio.serial.readers import read_unsigned_varint

from spark_kafka_sink.accumulator.producer_batch import NO_TIMESTAMP
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.codec import decode_response, response_type

NO_ERROR = ErrorCode.none
"""Looked up once: each batch's answer is compared with it."""


class PartitionResponse(NamedTuple):
    """``log_append_time`` in epoch ms, ``NO_TIMESTAMP`` unless the topic has LogAppendTime. ``leader`` with its epoch
    when a broker that leads no more says who does (KIP-951, from version 10 on).
    """

    base_offset: int
    log_append_time: int = NO_TIMESTAMP
    error_code: ErrorCode = NO_ERROR
    error_message: str | None = None
    leader: Node | None = None
    leader_epoch: int = -1


class ProduceResponse(NamedTuple):
    """``partitions`` by topic and number: a ``TopicPartition`` finds its own."""

    partitions: Mapping[tuple[str, int], PartitionResponse]
    throttle_time: timedelta


_SUCCESS = struct.Struct(">ihqqqBBB")  # index, error, base offset, append time, start offset; errors, message, tags
_END = struct.Struct(">iB")  # throttle time, tags
_NO_THROTTLE = timedelta(0)


def read_response(version: int, data: memoryview) -> ProduceResponse:
    """Raises ``NetworkError`` for bytes that are none. What follows the correlation id is read here, the usual answer
    by hand: kio's entities cost as much as everything else that is done about a request.
    """
    return _all_succeeded(data) or _read_entity(version, data)


def _all_succeeded(data: memoryview) -> ProduceResponse | None:
    """None when there is anything to it but successes."""
    partitions: dict[tuple[str, int], PartitionResponse] = {}
    answers = 0
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
                answers += 1
                at += _SUCCESS.size
            at += 1
            if data[at - 1]:
                return None
        throttle_ms, tags = _END.unpack_from(data, at)
    except (SerialError, ValueError, IndexError, struct.error):
        return None
    if data[0] or tags or at + _END.size != len(data) or answers != len(partitions):
        return None
    return ProduceResponse(partitions, timedelta(milliseconds=throttle_ms) if throttle_ms else _NO_THROTTLE)


def _read_entity(version: int, data: memoryview) -> ProduceResponse:
    body: Any = decode_response(data, response_type("produce", version))
    nodes = {each.node_id: each for each in getattr(body, "node_endpoints", ())}
    pairs = [
        ((topic.name, each.index), _partition(each, nodes))
        for topic in body.responses
        for each in topic.partition_responses
    ]
    partitions = dict(pairs)
    if len(partitions) != len(pairs):
        raise NetworkError("A Produce request was answered twice for one partition")
    return ProduceResponse(partitions, body.throttle_time)


def _partition(answer: Any, nodes: Mapping[int, Any]) -> PartitionResponse:
    appended = answer.log_append_time
    hint = getattr(answer, "current_leader", None)
    endpoint = nodes.get(hint.leader_id) if hint is not None else None
    return PartitionResponse(
        base_offset=answer.base_offset,
        log_append_time=NO_TIMESTAMP if appended is None else int(appended.timestamp() * 1000),
        error_code=answer.error_code,
        error_message=answer.error_message,
        leader=None if endpoint is None else Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack),
        leader_epoch=-1 if hint is None else hint.leader_epoch,
    )
