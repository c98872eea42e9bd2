"""The Produce API. Requests are written by hand, because kio would copy their records. Responses are read by hand,
because kio's entities cost as much CPU as all other work for a response; kio reads only versions before 9 (Kafka 2.8).
The ledger, whose batches are small, leaves both to kio.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial.errors import SerialError
from kio.serial.readers import read_unsigned_varint

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    ClusterSnapshot,
    Node,
    TopicIds,
    TopicPartition,
)
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.api_versions import (
    PRODUCE_FIRST_FLEXIBLE,
    PRODUCE_FIRST_WITH_LEADERS,
    PRODUCE_FIRST_WITH_TOPIC_IDS,
    VersionRange,
    produce_versions,
)
from spark_kafka_sink.network.error_table import error_code
from spark_kafka_sink.network.messages import CompletionHandler, Request, decode_response, request_header, response_type
from spark_kafka_sink.network.response_check import MAX_TAGGED_FIELDS

if TYPE_CHECKING:
    from spark_kafka_sink.producer.producer_batch import Buffer, ProducerBatch

NO_ERROR = ErrorCode.none
"""A constant, because a look-up of an Enum member per batch is noticeable."""

NO_THROTTLE: Final = timedelta(0)
NO_LIMIT: Final = 2**31
_RECORD_ERROR_BYTES: Final = 32
_FEW_RECORD_ERRORS: Final = 1000
_TWICE: Final = "A Produce response has a partition twice"


class PartitionResponse(NamedTuple):
    """A partition of a response. ``log_append_time``: epoch ms, ``NO_TIMESTAMP`` without LogAppendTime. ``leader``,
    ``leader_epoch``: the new leader, if the broker no longer leads the partition and says so (KIP-951, from version 10
    on). ``log_start_offset``: set with an error; ``UNKNOWN_OFFSET`` before version 5, and if the broker does not know
    it. ``record_errors``: index in the batch and message of each record that the broker refused (KIP-467, from version
    8 on), as they were sent.
    """

    base_offset: int
    log_append_time: int = NO_TIMESTAMP
    error_code: ErrorCode = NO_ERROR
    error_message: str | None = None
    leader: Node | None = None
    leader_epoch: int = NO_LEADER_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    record_errors: tuple[tuple[int, str | None], ...] = ()

    def refused(self, count: int) -> dict[int, tuple[ErrorCode, str | None]]:
        """Code and message of each record that the broker refused, by index in its batch of ``count`` records. As in
        Java, the code is the partition's if only one record was refused. An index that the batch does not have is
        ignored.
        """
        code = self.error_code if len(self.record_errors) == 1 else ErrorCode.invalid_record
        given = ((index, text or self.error_message) for index, text in self.record_errors)
        return {index: (code, text) for index, text in given if 0 <= index < count}


class ProduceResponse(NamedTuple):
    """A Produce response. ``partitions``: by (topic, partition), so a ``TopicPartition`` is a key."""

    partitions: Mapping[tuple[str, int], PartitionResponse]
    throttle_time: timedelta


PRODUCE = 0
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ihqqqBBB")
"""The fields index, error, base offset, append time, start offset. After a success, record errors, message and tags
have one byte each."""
_PARTITION_BEFORE_ERRORS = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")  # node id, epoch
_CURRENT_LEADER = _NODES = 0
"""The tags of a partition's leader and of the response's nodes (KIP-951)."""
_NO_FIELDS: Mapping[int, int] = MappingProxyType({})
_TOPIC_ID_BYTES = 16
_NODE_BYTES = 16


class ProduceRequest(Request):
    """A request with stamped batches, at most one per partition. The response's body is a ``ProduceResponse``.

    ``versions``: by default all versions that name topics. ``topic_ids``: the ids of the batches' topics; without them
    ``versions`` must end before the first version that needs ids.
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
        flexible = version >= PRODUCE_FIRST_FLEXIBLE
        before = _first_fields(self._acks, self._timeout_ms, self._transactional_id, flexible)
        body = _body(by_topic, before, flexible, self._ids_of(version))
        size = sum(map(len, body))
        return [request_header(PRODUCE, version, correlation_id, client_id, size, flexible), *body]

    def parse(self, version: int, data: memoryview) -> ProduceResponse:
        return read_response(version, data, len(self._batches), self._ids_of(version))

    def _ids_of(self, version: int) -> TopicIds | None:
        """The topic ids for a version; None if it names topics."""
        return self._topic_ids if version >= PRODUCE_FIRST_WITH_TOPIC_IDS else None


def produce_request(
    batches: Sequence[ProducerBatch],
    config: ProducerConfig,
    snapshot: ClusterSnapshot,
    on_complete: CompletionHandler,
    transactional_id: str | None = None,
    protocol: int = 0,
) -> ProduceRequest:
    """The request for these batches, in the versions that their codec, their topics' ids in ``snapshot`` and their
    transaction allow. ``protocol``: the transaction's protocol (1 or 2); 0 outside a transaction.
    """
    ids = snapshot.topic_ids.if_distinct()
    versions = produce_versions(ids is not None, protocol, config.compression_type)
    return ProduceRequest(batches, config, on_complete, versions, transactional_id, ids)


@dataclass(frozen=True, slots=True)
class ProduceEntity:
    """Makes kio's request with one batch and acks=all. ``topic_id``: None in versions that name topics."""

    partition: TopicPartition
    topic_id: UUID | None
    batch: bytes
    timeout: timedelta
    transactional_id: str | None = None

    def __call__(self, module: ModuleType, version: int) -> Any:
        data = module.request.PartitionProduceData(index=self.partition.partition, records=self.batch)
        by_id = version >= PRODUCE_FIRST_WITH_TOPIC_IDS
        name = {"topic_id": self.topic_id} if by_id else {"name": self.partition.topic}
        topic = module.request.TopicProduceData(partition_data=(data,), **name)
        return module.ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout=self.timeout, topic_data=(topic,)
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
def _string(text: str, flexible: bool) -> bytes:
    encoded = text.encode()
    return (compact(len(encoded)) if flexible else _INT16.pack(len(encoded))) + encoded


@lru_cache(16)
def _first_fields(acks: int, timeout_ms: int, transactional_id: str | None, flexible: bool) -> bytes:
    """The bytes before the topics."""
    name = b"\0" if flexible else _INT16.pack(-1)
    if transactional_id is not None:
        name = _string(transactional_id, flexible)
    return name + _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)


def _body(
    by_topic: Mapping[str, Sequence[ProducerBatch]], before: bytes, flexible: bool, ids: TopicIds | None
) -> list[Buffer]:
    """The bytes after the header, with the topics' names if ``ids`` is None; payloads by reference. ``before``: the
    ``_first_fields``.
    """
    length, no_tags = (compact, b"\0") if flexible else (_INT32.pack, b"")
    small = [before, length(len(by_topic))]
    body: list[Buffer] = []
    for topic, group in by_topic.items():
        small += _string(topic, flexible) if ids is None else ids.of[topic], length(len(group))
        for batch in group:
            assert batch.header is not None
            assert batch.payload is not None
            small += _INT32.pack(batch.partition.partition), length(batch.size), batch.header
            body.append(b"".join(small))
            body += batch.payload
            small = [no_tags]
        small.append(no_tags)
    small.append(no_tags)
    body.append(b"".join(small))
    return body


def read_response(
    version: int, data: memoryview, requested: int = NO_LIMIT, topic_ids: TopicIds | None = None
) -> ProduceResponse:
    """Decode the bytes after the correlation id. Raises ``NetworkError`` if they are not a response.

    ``requested``: the number of partitions in the request. A response has no more partitions, so its cost is bounded by
    the request's. ``topic_ids``: the ids in the request; None for a version that names topics. An unknown error code
    becomes UNKNOWN_SERVER_ERROR of its partition.
    """
    try:
        if version < PRODUCE_FIRST_FLEXIBLE:
            response = _read_with_kio(version, data, requested)
        else:
            response = _read_response(version, data, requested, None if topic_ids is None else topic_ids.names)
        for partition in response.partitions.values():
            if partition.base_offset < UNKNOWN_OFFSET or partition.log_append_time < NO_TIMESTAMP:
                raise ValueError(f"a partition has offset {partition.base_offset} and time {partition.log_append_time}")
        return response
    except (SerialError, ValueError, IndexError, struct.error) as error:
        text = f"a ProduceResponse v{version} of {len(data)} bytes cannot be read: {error}"
        raise NetworkError(text) from error.with_traceback(None)


def _read_with_kio(version: int, data: memoryview, requested: int) -> ProduceResponse:
    body: Any = decode_response(data, response_type("produce", version))
    read = [(topic.name, response) for topic in body.responses for response in topic.partition_responses]
    if len(read) > requested:
        raise _wrong_count(len(read), 0, requested)
    partitions: dict[tuple[str, int], PartitionResponse] = {}
    for topic, each in read:
        partitions[topic, each.index] = PartitionResponse(
            each.base_offset,
            each.log_append_time,
            each.error_code,
            getattr(each, "error_message", None),
            log_start_offset=getattr(each, "log_start_offset", UNKNOWN_OFFSET) if each.error_code else UNKNOWN_OFFSET,
            record_errors=tuple(
                (record.batch_index, record.batch_index_error_message) for record in getattr(each, "record_errors", ())
            ),
        )
    if len(partitions) != len(read):
        raise NetworkError(_TWICE)
    return ProduceResponse(partitions, body.throttle_time)


def _read_response(
    version: int, data: memoryview, requested: int, names: Mapping[bytes, str] | None
) -> ProduceResponse:
    """Reads a flexible response. ``names``: the topics' names by their ids; None for a version with names."""
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
        raise NetworkError(_TWICE)
    (throttle_ms,) = _INT32.unpack_from(data, at)
    tagged, _ = _read_tags(data, at + _INT32.size) if data[at + _INT32.size] else (_NO_FIELDS, at)
    if leaders and _NODES in tagged:
        nodes = _read_nodes(data, tagged[_NODES])
        for name, leader in leaders.items():
            partitions[name] = partitions[name]._replace(leader=nodes.get(leader))
    return ProduceResponse(partitions, timedelta(milliseconds=throttle_ms) if throttle_ms else NO_THROTTLE)


def _read_failure(version: int, data: memoryview, at: int) -> tuple[PartitionResponse, int | None, int]:
    """A partition that has more than an offset, the node id of its new leader, and the position after it."""
    _, code, offset, appended, start = _PARTITION_BEFORE_ERRORS.unpack_from(data, at)
    record_errors, at = _read_record_errors(data, at + _PARTITION_BEFORE_ERRORS.size)
    message, at = _read_nullable_string(data, at)
    tagged, at = _read_tags(data, at)
    leader, epoch = None, NO_LEADER_EPOCH
    if _CURRENT_LEADER in tagged and version >= PRODUCE_FIRST_WITH_LEADERS:
        leader, epoch = _LEADER.unpack_from(data, tagged[_CURRENT_LEADER])
    known = error_code(code)
    if known != code and message is None:
        message = f"the broker's error code is {code}, which this client does not know"
    start = start if code else UNKNOWN_OFFSET
    return PartitionResponse(offset, appended, known, message, None, epoch, start, record_errors), leader, at


def _read_record_errors(data: memoryview, at: int) -> tuple[tuple[tuple[int, str | None], ...], int]:
    errors: list[tuple[int, str | None]] = []
    # Apache Kafka's brokers give only one of the record errors a message; other brokers may give more.
    count, at = _read_array(data, at, len(data) // _RECORD_ERROR_BYTES + _FEW_RECORD_ERRORS)
    for _ in range(count):
        (index,) = _INT32.unpack_from(data, at)
        message, at = _read_nullable_string(data, at + _INT32.size)
        errors.append((index, message))
        at = _read_tags(data, at)[1] if data[at] else at + 1
    return tuple(errors), at


def _read_nodes(data: memoryview, at: int) -> dict[int, Node]:
    nodes = {}
    count, at = _read_array(data, at, len(data) // _NODE_BYTES + 1)
    for _ in range(count):
        (node_id,) = _INT32.unpack_from(data, at)
        host, at = _read_string(data, at + _INT32.size)
        (port,) = _INT32.unpack_from(data, at)
        rack, at = _read_nullable_string(data, at + _INT32.size)
        at = _read_tags(data, at)[1]
        if node_id >= 0 and 0 < port < 1 << 16:  # otherwise it is no broker, and metadata has the leader
            nodes[node_id] = Node(node_id, host, port, rack)
    return nodes


def _read_array(data: memoryview, at: int, limit: int) -> tuple[int, int]:
    """The number of elements, at most ``limit``, and the position of the first element. Every element has at least one
    byte."""
    announced, size = read_unsigned_varint(data, at)
    count, at = announced - 1, at + size
    left = len(data) - at
    if count < 0 or count > limit or count > left:
        raise _wrong_count(count, left, limit)
    return count, at


def _wrong_count(count: int, left: int, limit: int) -> ValueError:
    """The error for an array that is null, has more than ``limit`` elements, or more than fit in ``left`` bytes."""
    if count < 0:
        return ValueError("an array that must not be null is null")
    possible = f"at most {limit} are possible" if count > limit else f"{left} bytes follow"
    return ValueError(f"an array of {count} elements is announced, but {possible}")


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
        raise ValueError("a string that must not be null is null")
    return text, at


def _read_nullable_string(data: memoryview, at: int) -> tuple[str | None, int]:
    length, size = read_unsigned_varint(data, at)
    at += size
    if not length:
        return None, at
    end = at + length - 1
    if end > len(data):
        raise ValueError(f"a string of {length - 1} bytes is announced, but {len(data) - at} bytes follow")
    return str(data[at:end], "utf-8"), end


def _read_tags(data: memoryview, at: int) -> tuple[Mapping[int, int], int]:
    """The position of each tagged field by its tag, and the position after all of them."""
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
