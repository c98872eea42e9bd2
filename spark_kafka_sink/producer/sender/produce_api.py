"""The Produce API: requests of every version, and the flexible versions (9 and later) of requests and responses.

Written and read by hand: kio would copy the records of a request, and its entities cost as much CPU as all other work
for a response. ``inflexible_produce`` has the versions before 9.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from kio.serial.errors import SerialError
from kio.serial.readers import read_unsigned_varint

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.api_versions import (
    PRODUCE_FIRST_FLEXIBLE,
    PRODUCE_FIRST_WITH_LEADERS,
    PRODUCE_FIRST_WITH_TOPIC_IDS,
    VersionRange,
    produce_versions,
)
from spark_kafka_sink.network.messages import CompletionHandler, Request, request_header
from spark_kafka_sink.network.response_check import MAX_TAGGED_FIELDS
from spark_kafka_sink.producer.accumulator.producer_batch import NO_TIMESTAMP, UNKNOWN_OFFSET, Buffer, ProducerBatch
from spark_kafka_sink.producer.sender import inflexible_produce
from spark_kafka_sink.producer.sender.produce_response import (
    NO_LIMIT,
    NO_THROTTLE,
    UNKNOWN_START,
    PartitionResponse,
    ProduceResponse,
    known_error,
    most_record_errors,
    wrong_count,
)

PRODUCE = 0
_NO_TAGS = b"\0"
_NULL_STRING = b"\0"
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ihqqqBBB")
"""Index, error, base offset, append time, start offset. In a success one byte each for record errors, message, tags."""
_PARTITION_BEFORE_ERRORS = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")  # node id, epoch
_CURRENT_LEADER = _NODES = 0
"""Tags, of a partition and of the response (KIP-951)."""
_NO_FIELDS: Mapping[int, int] = MappingProxyType({})
_TOPIC_ID_BYTES = 16
_NODE_BYTES = 16


class ProduceRequest(Request):
    """A request with stamped batches, at most one per partition. The response's body is a ``ProduceResponse``.

    ``versions``: by default all that name topics. ``topic_ids``: those of the batches' topics; without them
    ``versions`` must end before the one that needs them.
    """

    def __init__(
        self,
        batches: Sequence[ProducerBatch],
        config: ProducerConfig,
        on_complete: CompletionHandler,
        versions: VersionRange | None = None,
        transactional_id: str | None = None,
        topic_ids: TopicIds | None = None,
    ) -> None:
        super().__init__(PRODUCE, versions or produce_versions(), on_complete, expects_response=config.acks != 0)
        self._batches = batches
        self._acks = config.acks
        self._timeout_ms = config.request_timeout_ms
        self._transactional_id = transactional_id
        self._topic_ids = topic_ids

    def build(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        by_topic: dict[str, list[ProducerBatch]] = {}
        for batch in self._batches:
            by_topic.setdefault(batch.partition.topic, []).append(batch)
        given = self._acks, self._timeout_ms, self._transactional_id
        flexible = version >= PRODUCE_FIRST_FLEXIBLE
        if flexible:
            body = _body(by_topic, _first_fields(*given), self._ids_of(version))
        else:
            body = inflexible_produce.request_body(by_topic, inflexible_produce.first_fields(*given))
        size = sum(map(len, body))
        return [request_header(PRODUCE, version, correlation_id, client_id, size, flexible), *body]

    def parse(self, version: int, data: memoryview) -> ProduceResponse:
        return read_response(version, data, len(self._batches), self._ids_of(version))

    def _ids_of(self, version: int) -> TopicIds | None:
        """None for a version that names topics."""
        return self._topic_ids if version >= PRODUCE_FIRST_WITH_TOPIC_IDS else None


class TopicIds(NamedTuple):
    """The ids of topics in both directions: ``of`` by name, ``names`` by id. An id is its 16 bytes."""

    of: Mapping[str, bytes]
    names: Mapping[bytes, str]


def topic_ids(snapshot: ClusterSnapshot) -> TopicIds | None:
    """The ids of all topics that batches can be sent to; None unless all are known and different, because rows sent to
    an id that two topics have might be written to the wrong one. O(topics)."""
    of: dict[str, bytes] = {}
    for name, info in snapshot.topics.items():
        if info.topic_id is not None:
            of[name] = info.topic_id.bytes
        elif info.leaders:
            return None
    names = {topic_id: name for name, topic_id in of.items()}
    return TopicIds(of, names) if len(names) == len(of) else None


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


def _body(by_topic: Mapping[str, Sequence[ProducerBatch]], first_fields: bytes, ids: TopicIds | None) -> list[Buffer]:
    """A flexible request, with the topics' names if ``ids`` is None; payloads by reference."""
    small = [first_fields, compact(len(by_topic))]
    body: list[Buffer] = []
    for topic, group in by_topic.items():
        small += compact_string(topic) if ids is None else ids.of[topic], compact(len(group))
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
    return body


def read_response(
    version: int, data: memoryview, requested: int = NO_LIMIT, topic_ids: TopicIds | None = None
) -> ProduceResponse:
    """Decode the bytes after the correlation id. Raises ``NetworkError`` if they are not a response.

    ``requested``: partitions of the request; a response has no more, so its CPU is bounded by that of the request.
    ``topic_ids``: those of the request; None for a version that names topics. An error code that this client does
    not know is UNKNOWN_SERVER_ERROR of its partition.
    """
    try:
        if version < PRODUCE_FIRST_FLEXIBLE:
            response = inflexible_produce.read_response(version, data, requested)
        else:
            response = _read_response(version, data, requested, None if topic_ids is None else topic_ids.names)
        for each in response.partitions.values():
            if each.base_offset < UNKNOWN_OFFSET or each.log_append_time < NO_TIMESTAMP:
                raise ValueError(f"an offset is {each.base_offset}, and its time {each.log_append_time}")
        return response
    except (SerialError, ValueError, IndexError, struct.error) as error:
        text = f"a ProduceResponse v{version} of {len(data)} bytes cannot be read: {error}"
        raise NetworkError(text) from error.with_traceback(None)


def _read_response(
    version: int, data: memoryview, requested: int, names: Mapping[bytes, str] | None
) -> ProduceResponse:
    """``names``: of topics by their ids; None for a version with names."""
    partitions: dict[tuple[str, int], PartitionResponse] = {}
    leaders: dict[tuple[str, int], int] = {}
    responses = 0
    topics, at = _read_array(data, _read_tags(data, 0)[1] if data[0] else 1, requested)
    for _ in range(topics):
        topic, at = _read_string(data, at) if names is None else _read_topic_id(data, at, names)
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
    return ProduceResponse(partitions, timedelta(milliseconds=throttle_ms) if throttle_ms else NO_THROTTLE)


def _read_failure(version: int, data: memoryview, at: int) -> tuple[PartitionResponse, int | None, int]:
    """A partition that has more than an offset, the node id of its new leader, and where it ends."""
    _, code, offset, appended, start = _PARTITION_BEFORE_ERRORS.unpack_from(data, at)
    at = _skip_record_errors(data, at + _PARTITION_BEFORE_ERRORS.size)
    message, at = _read_nullable_string(data, at)
    tagged, at = _read_tags(data, at)
    leader, epoch = None, -1
    if _CURRENT_LEADER in tagged and version >= PRODUCE_FIRST_WITH_LEADERS:
        leader, epoch = _LEADER.unpack_from(data, tagged[_CURRENT_LEADER])
    known, message = known_error(code, message)
    start = start if code else UNKNOWN_START
    return PartitionResponse(offset, appended, known, message, None, epoch, start), leader, at


def _skip_record_errors(data: memoryview, at: int) -> int:
    """Errors of single records; the partition's own says enough."""
    count, at = _read_array(data, at, most_record_errors(data))
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
        if node_id >= 0 and 0 < port < 1 << 16:  # otherwise no broker is meant, and metadata has the leader
            nodes[node_id] = Node(node_id, host, port, rack)
    return nodes


def _read_array(data: memoryview, at: int, limit: int) -> tuple[int, int]:
    """The number of elements, at most ``limit``, and where the first one is. Every element has at least one byte."""
    announced, size = read_unsigned_varint(data, at)
    count, at = announced - 1, at + size
    left = len(data) - at
    if count < 0 or count > limit or count > left:
        raise wrong_count(count, left, limit)
    return count, at


def _read_topic_id(data: memoryview, at: int, names: Mapping[bytes, str]) -> tuple[str, int]:
    """The name of the topic with the id, which must be one of the request."""
    end = at + _TOPIC_ID_BYTES
    topic_id = bytes(data[at:end])
    if topic_id not in names:
        raise ValueError(f"the request has no topic with id {topic_id.hex()}")
    return names[topic_id], end


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
