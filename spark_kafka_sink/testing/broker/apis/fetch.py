"""The APIs with which consumers read: Fetch and ListOffsets."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import NO_LEADER, NO_LEADER_EPOCH
from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.testing.broker.request_context import (
    Delayed,
    HandlerResult,
    RequestContext,
    by_topic,
    endpoint,
    milliseconds,
)
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.wire import Fields

_log = logging.getLogger(__name__)

_TOPIC_IDS_SINCE: Final = 13
_LEADER_ERRORS: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
_NOT_FOUND: Final = (-1, -1)


@dataclass(slots=True)
class _Reading:
    """One pass over the asked partitions."""

    size: int = 0
    has_error: bool = False
    rows: list[tuple[Hashable, Fields]] = field(default_factory=list)
    leaders: set[int] = field(default_factory=set)


def fetch(context: RequestContext) -> HandlerResult:
    """Fetch (1): records for consumers (Kafka: ``ReplicaManager.fetchMessages``, ``DelayedFetch``).

    Emulated: whole batches, from the batch that holds the offset on, at least one even if it is over the limits
    (KIP-74); read_committed up to the last stable offset with the aborted transactions; OFFSET_OUT_OF_RANGE, leader
    epochs, the new leader's address (KIP-951), topic ids; waiting for ``min_bytes`` up to ``max_wait``.
    """
    if getattr(context.body, "session_id", 0):
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    reading = _read_asked(context)
    max_wait_ms = milliseconds(context.body.max_wait)
    if reading.has_error or reading.size >= context.body.min_bytes or not max_wait_ms:
        return _fetched(context, reading)

    def try_complete() -> Fields | None:
        again = _read_asked(context)
        return _fetched(context, again) if again.has_error or again.size >= context.body.min_bytes else None

    return Delayed(max_wait_ms, try_complete, lambda: _fetched(context, _read_asked(context)))


def _fetched(context: RequestContext, reading: _Reading) -> Fields:
    name = "topic" if context.version < _TOPIC_IDS_SINCE else "topic_id"
    return {
        "responses": by_topic(reading.rows, name, "partitions"),
        "node_endpoints": [endpoint(context, context.cluster.nodes[leader]) for leader in sorted(reading.leaders)],
    }


def _read_asked(context: RequestContext) -> _Reading:
    reading = _Reading()
    for topic in context.body.topics:
        key = topic.topic if context.version < _TOPIC_IDS_SINCE else topic.topic_id
        name = _name(context, topic)
        for asked in topic.partitions:
            reading.rows.append((key, _read_partition(context, reading, name, asked)))
    return reading


def _name(context: RequestContext, topic: Any) -> str | None:
    if context.version < _TOPIC_IDS_SINCE:
        return str(topic.topic)
    known = context.cluster.topic_by_id(topic.topic_id)
    return None if known is None else known.name


def _read_partition(context: RequestContext, reading: _Reading, name: str | None, asked: Any) -> Fields:
    partition = None if name is None else context.cluster.partition(name, asked.partition)
    try:
        error = context.scripted(name, asked.partition) or _error(context, name, partition, asked)
        if not error and partition is not None:
            return _read_to_end(context, reading, partition, asked)
    except Exception:
        _log.exception("error processing fetch from partition %s-%d", name, asked.partition)
        error = ErrorCode.unknown_server_error
    reading.has_error = True
    return _failed(reading, asked.partition, partition, error)


def _read_to_end(context: RequestContext, reading: _Reading, partition: Partition, asked: Any) -> Fields:
    read_committed = bool(context.body.isolation_level)
    end = partition.last_stable_offset() if read_committed else partition.high_watermark
    records, read_to = _records(context, reading, partition, asked, end)
    reading.size += len(records)
    aborted = partition.log.aborted_between(asked.fetch_offset, read_to) if read_committed else None
    return {
        "partition_index": asked.partition,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset(),
        "log_start_offset": partition.log.start_offset,
        "aborted_transactions": aborted
        and [{"producer_id": each.producer_id, "first_offset": each.first_offset} for each in aborted],
        "records": records,
    }


def _records(
    context: RequestContext, reading: _Reading, partition: Partition, asked: Any, end: int
) -> tuple[bytes, int]:
    """The bytes of the batches, and the offset after the last record."""
    room = min(asked.partition_max_bytes, context.body.max_bytes - reading.size)
    taken: list[bytes] = []
    read_to = asked.fetch_offset
    for batch in partition.log.batches_from(asked.fetch_offset, end):
        room -= len(batch.data)
        if room < 0 and (taken or reading.size):
            break
        taken.append(batch.data)
        read_to = batch.last_offset + 1
    return b"".join(taken), read_to


def _error(context: RequestContext, name: str | None, partition: Partition | None, asked: Any) -> ErrorCode:
    if partition is None:
        return ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
    epoch = getattr(asked, "current_leader_epoch", NO_LEADER_EPOCH)
    if epoch != NO_LEADER_EPOCH and epoch != partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch if epoch < partition.leader_epoch else ErrorCode.unknown_leader_epoch
    error = partition.leadership_error(context.request.node)
    if not error and not partition.log.start_offset <= asked.fetch_offset <= partition.log.end_offset:
        return ErrorCode.offset_out_of_range
    return error


def _failed(reading: _Reading, index: int, partition: Partition | None, error: ErrorCode) -> Fields:
    fields: Fields = {
        "partition_index": index,
        "error_code": error,
        "high_watermark": -1,
        "aborted_transactions": None,
        "records": b"",
    }
    if partition is not None and error in _LEADER_ERRORS and partition.leader != NO_LEADER:
        reading.leaders.add(partition.leader)
        fields["current_leader"] = {"leader_id": partition.leader, "leader_epoch": partition.leader_epoch}
    return fields


def list_offsets(context: RequestContext) -> Fields:
    """ListOffsets (2): where a partition starts and ends, and the first record at or after a timestamp.

    Emulated: earliest (-2), latest (-1; the last stable offset for read_committed), by timestamp to the record, the
    largest timestamp (-3, KIP-734), earliest local (-4, the same as earliest here).
    """
    rows = [
        (topic.name, _offset_row(context, topic.name, asked))
        for topic in context.body.topics
        for asked in topic.partitions
    ]
    return {"topics": by_topic(rows, "name", "partitions")}


def _offset_row(context: RequestContext, topic: str, asked: Any) -> Fields:
    try:
        return _offset_of_partition(context, topic, asked)
    except Exception:
        _log.exception("error while responding to offset request for partition %s-%d", topic, asked.partition_index)
        error = ErrorCode.unknown_server_error
        return {"partition_index": asked.partition_index, "error_code": error, "timestamp": -1, "offset": -1}


def _offset_of_partition(context: RequestContext, topic: str, asked: Any) -> Fields:
    fields: Fields = {"partition_index": asked.partition_index}
    partition = context.cluster.partition(topic, asked.partition_index)
    error = context.scripted(topic, asked.partition_index)
    if not error and partition is None:
        error = ErrorCode.unknown_topic_or_partition
    if not error and partition is not None:
        error = partition.leadership_error(context.request.node)
    if error or partition is None:
        return {**fields, "error_code": error, "timestamp": -1, "offset": -1}
    timestamp, offset = _find(
        partition, asked.timestamp, read_committed=bool(getattr(context.body, "isolation_level", 0))
    )
    return {**fields, "timestamp": timestamp, "offset": offset, "leader_epoch": partition.leader_epoch}


def _find(partition: Partition, timestamp: int, *, read_committed: bool) -> tuple[int, int]:
    """The timestamp and offset that were asked for, both -1 if there is no such record."""
    end = partition.last_stable_offset() if read_committed else partition.high_watermark
    if timestamp == LATEST:
        return -1, end
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, partition.log.start_offset
    records = [
        (record.timestamp, record.offset)
        for stored in partition.log.batches_from(partition.log.start_offset, end)
        if timestamp == MAX_TIMESTAMP or stored.max_timestamp >= timestamp
        for batch in decode_batches(stored.data)
        for record in batch.records
    ]
    if timestamp == MAX_TIMESTAMP:
        return max(records, key=lambda record: (record[0], -record[1]), default=_NOT_FOUND)
    return next((record for record in records if record[0] >= timestamp), _NOT_FOUND)
