"""TxnOffsetCommit (28): offsets that count when their transaction commits.

Emulated: identity and state of the transaction, added by the broker itself from version 5 on (KIP-890). Not emulated:
members and generations of the group.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.testing.broker.call import Call, by_topic
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.offsets import CommittedOffset
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity
from spark_kafka_sink.testing.broker.wire import Fields

_ABORTABLE_SINCE: Final = 4
_ADDS_OFFSETS_SINCE: Final = 5


def handle(call: Call) -> Fields:
    body = call.body
    refused = _error(call)
    rows: list[tuple[str, Fields]] = []
    for topic in body.topics:
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            error = refused or call.scripted(*name)
            if not error and call.cluster.partition(*name) is None:
                error = ErrorCode.unknown_topic_or_partition
            if not error:
                epoch = getattr(asked, "committed_leader_epoch", -1)
                offset = CommittedOffset(asked.committed_offset, epoch, asked.committed_metadata or "")
                call.state.offsets.commit_in_transaction(body.producer_id, body.group_id, name, offset)
            rows.append((topic.name, {"partition_index": asked.partition_index, "error_code": error}))
    return {"topics": by_topic(rows, "name", "partitions")}


def _error(call: Call) -> ErrorCode:
    body = call.body
    identity = ProducerIdentity(body.producer_id, body.producer_epoch)
    try:
        call.check_coordinator(body.group_id)
        if call.version >= _ADDS_OFFSETS_SINCE:
            call.state.transactions.add_partitions(body.transactional_id, identity, (), call.now_ms)
        else:
            call.state.transactions.verify_open(body.transactional_id, identity)
    except ApiError as refused:
        if refused.error is ErrorCode.transaction_abortable and call.version < _ABORTABLE_SINCE:
            return ErrorCode.invalid_txn_state
        return ErrorCode.invalid_producer_epoch if refused.error is ErrorCode.producer_fenced else refused.error
    return ErrorCode.none
