"""The Produce API, versions 9 to 12; every broker from 2.8 on supports one of them.

Written and read by hand: kio would copy the records of a request, and its entities cost as much CPU as all other work
for a response.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.serial.errors import SerialError
from kio.serial.readers import read_unsigned_varint

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.error_table import error_code
from spark_kafka_sink.network.messages import (
    PRODUCE_VERSIONS,
    CompletionHandler,
    Request,
    request_header,
)
from spark_kafka_sink.network.response_check import MAX_TAGGED_FIELDS
from spark_kafka_sink.producer.accumulator.producer_batch import NO_TIMESTAMP, Buffer, ProducerBatch

PRODUCE = 0
NO_ERROR = ErrorCode.none
"""A look-up of an Enum member per batch is felt."""

_NO_TAGS = b"\0"
_NULL_STRING = b"\0"
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ihqqqBBB")
"""Index, error, base offset, append time, start offset. In a success one byte each for record errors, message, tags."""
_PARTITION_BEFORE_ERRORS = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")  # node id, epoch
_FIRST_WITH_LEADERS = 10
_CURRENT_LEADER = _NODES = 0
"""Tags, of a partition and of the response (KIP-951)."""
_NO_FIELDS: Mapping[int, int] = MappingProxyType({})
_NO_THROTTLE = timedelta(0)
_NO_LIMIT = 2**31
_RECORD_ERROR_BYTES = 32
_FEW_RECORD_ERRORS = 1000
"""An error of a record has a message, but for those of other brokers than Apache Kafka's."""
_NODE_BYTES = 16


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
        return read_response(version, data, len(self._batches))


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
            small += _INT32.pack(batch.partition.partition), compact(batch.size), batch.header
            body.append(b"".join(small))
            body += batch.payload
            small = [_NO_TAGS]
        small.append(_NO_TAGS)
    small.append(_NO_TAGS)
    body.append(b"".join(small))
    head = request_header(PRODUCE, version, correlation_id, client_id, sum(map(len, body)), flexible=True)
    return [head, *body]


def read_response(version: int, data: memoryview, requested: int = _NO_LIMIT) -> ProduceResponse:
    """Decode the bytes after the correlation id. Raises ``NetworkError`` if they are not a response.

    ``requested``: partitions of the request; a response has no more, so its CPU is bounded by that of the request.
    An error code that this client does not know is UNKNOWN_SERVER_ERROR of its partition.
    """
    try:
        return _read_response(version, data, requested)
    except (SerialError, ValueError, IndexError, struct.error) as error:
        text = f"a ProduceResponse v{version} of {len(data)} bytes cannot be read: {error}"
        raise NetworkError(text) from error.with_traceback(None)


def _read_response(version: int, data: memoryview, requested: int) -> ProduceResponse:
    partitions: dict[tuple[str, int], PartitionResponse] = {}
    leaders: dict[tuple[str, int], int] = {}
    responses = 0
    topics, at = _read_array(data, _read_tags(data, 0)[1] if data[0] else 1, requested)
    for _ in range(topics):
        topic, at = _read_string(data, at)
        count, at = _read_array(data, at, requested - responses)
        responses += count
        for _ in range(count):
            index, code, offset, appended, _, errors, message, tags = _PARTITION.unpack_from(data, at)
            if not code and errors == 1 and not message and not tags:
                partitions[topic, index] = PartitionResponse(offset, appended)
                at += _PARTITION.size
                continue
            partitions[topic, index], leader, at = _read_failure(version, data, at)
            if leader is not None:
                leaders[topic, index] = leader
        at = _read_tags(data, at)[1] if data[at] else at + 1
    if len(partitions) != responses:
        raise NetworkError("A Produce response has one partition twice")
    (throttle_ms,) = _INT32.unpack_from(data, at)
    tagged, _ = _read_tags(data, at + _INT32.size) if data[at + _INT32.size] else (_NO_FIELDS, at)
    if leaders and _NODES in tagged:
        nodes = _read_nodes(data, tagged[_NODES])
        for name, leader in leaders.items():
            partitions[name] = partitions[name]._replace(leader=nodes.get(leader))
    return ProduceResponse(partitions, timedelta(milliseconds=throttle_ms) if throttle_ms else _NO_THROTTLE)


def _read_failure(version: int, data: memoryview, at: int) -> tuple[PartitionResponse, int | None, int]:
    """A partition that has more than an offset, the node id of its new leader, and where it ends."""
    _, code, offset, appended, _ = _PARTITION_BEFORE_ERRORS.unpack_from(data, at)
    at = _skip_record_errors(data, at + _PARTITION_BEFORE_ERRORS.size)
    message, at = _read_nullable_string(data, at)
    tagged, at = _read_tags(data, at)
    leader, epoch = None, -1
    if _CURRENT_LEADER in tagged and version >= _FIRST_WITH_LEADERS:
        leader, epoch = _LEADER.unpack_from(data, tagged[_CURRENT_LEADER])
    known = error_code(code)
    if known != code and message is None:
        message = f"the broker's error code is {code}, which this client does not know"
    return PartitionResponse(offset, appended, known, message, leader_epoch=epoch), leader, at


def _skip_record_errors(data: memoryview, at: int) -> int:
    """Errors of single records; the partition's own says enough."""
    count, at = _read_array(data, at, len(data) // _RECORD_ERROR_BYTES + _FEW_RECORD_ERRORS)
    for _ in range(count):
        length, size = read_unsigned_varint(data, at + _INT32.size)
        at += _INT32.size + size + max(length - 1, 0)
        at = _read_tags(data, at)[1] if data[at] else at + 1
    return at


def _read_nodes(data: memoryview, at: int) -> dict[int, Node]:
    nodes = {}
    count, at = _read_array(data, at, len(data) // _NODE_BYTES + 1)
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(data, at)
        host, at = _read_string(data, at + _INT32.size)
        (port,) = _INT32.unpack_from(data, at)
        rack, at = _read_nullable_string(data, at + _INT32.size)
        at = _read_tags(data, at)[1]
        nodes[node_id] = Node(node_id, host, port, rack)
    return nodes


def _read_array(data: memoryview, at: int, limit: int) -> tuple[int, int]:
    """The number of elements, at most ``limit``, and where the first one is. Every element has at least one byte."""
    count, size = read_unsigned_varint(data, at)
    if not count:
        raise ValueError("an array is null that must not be")
    at += size
    if count - 1 > len(data) - at:
        raise ValueError(f"an array of {count - 1} elements is announced, and {len(data) - at} bytes follow")
    if count - 1 > limit:
        raise ValueError(f"an array of {count - 1} elements is announced, and at most {limit} are possible")
    return count - 1, at


def _read_string(data: memoryview, at: int) -> tuple[str, int]:
    text, at = _read_nullable_string(data, at)
    if text is None:
        raise ValueError("a string is null that must not be")
    return text, at


def _read_nullable_string(data: memoryview, at: int) -> tuple[str | None, int]:
    length, size = read_unsigned_varint(data, at)
    at += size
    if not length:
        return None, at
    end = at + length - 1
    if end > len(data):
        raise ValueError(f"a string of {length - 1} bytes is announced, and {len(data) - at} bytes follow")
    return str(data[at:end], "utf-8"), end


def _read_tags(data: memoryview, at: int) -> tuple[Mapping[int, int], int]:
    """Where each tagged field is, by tag, and where they end."""
    count, size = read_unsigned_varint(data, at)
    at += size
    if not count:
        return _NO_FIELDS, at
    if count > MAX_TAGGED_FIELDS:
        raise ValueError(f"an entity has {count} tagged fields")
    fields: dict[int, int] = {}
    for _ in range(count):
        tag, size = read_unsigned_varint(data, at)
        at += size
        length, size = read_unsigned_varint(data, at)
        at += size
        fields[tag] = at
        at += length
        if at > len(data):
            raise ValueError(f"a tagged field of {length} bytes goes beyond the data")
    return fields, at
