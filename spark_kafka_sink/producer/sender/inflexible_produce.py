"""Produce before version 9, whose lengths are fixed integers: requests, and responses of versions 3 to 8.

Responses grew a log start offset in version 5, and record errors and a message in version 8.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.producer.accumulator.producer_batch import Buffer, ProducerBatch
from spark_kafka_sink.producer.sender.produce_response import (
    NO_ERROR,
    NO_LIMIT,
    NO_THROTTLE,
    UNKNOWN_START,
    PartitionResponse,
    ProduceResponse,
    known_error,
    most_record_errors,
    wrong_count,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_INDEX_AND_SIZE = struct.Struct(">ii")
_PARTITION = struct.Struct(">ihqq")
"""Index, error, base offset, append time."""
_NULL = -1
_FIRST_WITH_START_OFFSET = 5
_FIRST_WITH_RECORD_ERRORS = 8
_LEAST_TOPIC_BYTES = 6
_LEAST_RECORD_ERROR_BYTES = 6


@lru_cache(16)
def first_fields(acks: int, timeout_ms: int, transactional_id: str | None) -> bytes:
    """What stands before the topics."""
    name = _INT16.pack(_NULL) if transactional_id is None else _string(transactional_id)
    return name + _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)


@lru_cache(1024)
def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def request_body(by_topic: Mapping[str, Sequence[ProducerBatch]], before: bytes) -> list[Buffer]:
    """The bytes after the header; payloads by reference. ``before``: the ``first_fields``."""
    small = [before, _INT32.pack(len(by_topic))]
    body: list[Buffer] = []
    for topic, group in by_topic.items():
        small += _string(topic), _INT32.pack(len(group))
        for batch in group:
            assert batch.header is not None
            assert batch.payload is not None
            small += _INDEX_AND_SIZE.pack(batch.partition.partition, batch.size), batch.header
            body.append(b"".join(small))
            body += batch.payload
            small = []
    return body


def read_response(version: int, data: memoryview, requested: int = NO_LIMIT) -> ProduceResponse:
    """Decodes the bytes after the correlation id. Raises ``NetworkError``, ``ValueError``, ``IndexError`` or
    ``struct.error`` if they are not a response. ``requested``: partitions of the request; a response has no more.
    """
    partitions: dict[tuple[str, int], PartitionResponse] = {}
    responses = 0
    topics, at = _read_array(data, 0, _LEAST_TOPIC_BYTES, requested)
    for _ in range(topics):
        name, at = _read_nullable_string(data, at)
        if name is None:
            raise ValueError("a string is null that must not be")
        count, at = _read_array(data, at, _PARTITION.size, requested - responses)
        responses += count
        for _ in range(count):
            index, response, at = _read_partition(version, data, at)
            partitions[name, index] = response
    if len(partitions) != responses:
        raise NetworkError("A Produce response has one partition twice")
    (throttle_ms,) = _INT32.unpack_from(data, at)
    return ProduceResponse(partitions, timedelta(milliseconds=throttle_ms) if throttle_ms else NO_THROTTLE)


def _read_partition(version: int, data: memoryview, at: int) -> tuple[int, PartitionResponse, int]:
    index, code, offset, appended = _PARTITION.unpack_from(data, at)
    at += _PARTITION.size
    start, message = UNKNOWN_START, None
    if version >= _FIRST_WITH_START_OFFSET:
        (start,) = _INT64.unpack_from(data, at)
        at += _INT64.size
    if version >= _FIRST_WITH_RECORD_ERRORS:
        at = _skip_record_errors(data, at)
        message, at = _read_nullable_string(data, at)
    if not code:
        return index, PartitionResponse(offset, appended, NO_ERROR, message), at
    known, message = known_error(code, message)
    return index, PartitionResponse(offset, appended, known, message, log_start_offset=start), at


def _skip_record_errors(data: memoryview, at: int) -> int:
    """Errors of single records; the partition's own says enough."""
    count, at = _read_array(data, at, _LEAST_RECORD_ERROR_BYTES, most_record_errors(data))
    for _ in range(count):
        (length,) = _INT16.unpack_from(data, at + _INT32.size)
        at += _LEAST_RECORD_ERROR_BYTES + max(length, 0)
    return at


def _read_array(data: memoryview, at: int, least: int, limit: int) -> tuple[int, int]:
    """The number of elements, at most ``limit``, and where the first one is. ``least``: the fewest bytes of one."""
    (count,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    left = len(data) - at
    if count < 0 or count > limit or count * least > left:
        raise wrong_count(count, left, limit)
    return count, at


def _read_nullable_string(data: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(data, at)
    at += _INT16.size
    if length < 0:
        return None, at
    if at + length > len(data):
        raise ValueError(f"a string of {length} bytes is announced, and {len(data) - at} bytes follow")
    return str(data[at : at + length], "utf-8"), at + length
