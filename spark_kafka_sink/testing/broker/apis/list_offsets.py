"""ListOffsets (2): where a partition starts and ends, and the first record at or after a timestamp.

Emulated: earliest (-2), latest (-1; the last stable offset for read_committed), by timestamp to the record, the largest
timestamp (-3, KIP-734), earliest local (-4, the same as earliest here).
"""

from __future__ import annotations

import logging
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.testing.broker.request_context import RequestContext, by_topic
from spark_kafka_sink.testing.broker.state.partition import Partition
from spark_kafka_sink.testing.broker.wire import Fields

_log = logging.getLogger(__name__)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
_NOT_FOUND: Final = (-1, -1)


def handle(context: RequestContext) -> Fields:
    rows = [
        (topic.name, _row(context, topic.name, asked)) for topic in context.body.topics for asked in topic.partitions
    ]
    return {"topics": by_topic(rows, "name", "partitions")}


def _row(context: RequestContext, topic: str, asked: Any) -> Fields:
    try:
        return _partition(context, topic, asked)
    except Exception:
        _log.exception("error while responding to offset request for partition %s-%d", topic, asked.partition_index)
        error = ErrorCode.unknown_server_error
        return {"partition_index": asked.partition_index, "error_code": error, "timestamp": -1, "offset": -1}


def _partition(context: RequestContext, topic: str, asked: Any) -> Fields:
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
    """``(timestamp, offset)``, both -1 where there is none."""
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
