"""AddOffsetsToTxn (25): a group's offsets become part of a transaction (transactions version 1).

Emulated: the check of identity and state; the group's partition of ``__consumer_offsets`` becomes part of the
transaction and gets its marker. The offsets themselves come with TxnOffsetCommit.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity
from spark_kafka_sink.testing.broker.wire import Fields

_FENCED_SINCE: Final = 2


def handle(context: RequestContext) -> Fields:
    body = context.body
    try:
        context.check_script()
        context.check_coordinator(body.transactional_id)
        identity = ProducerIdentity(body.producer_id, body.producer_epoch)
        partition = context.state.offsets.partition(body.group_id).name
        context.state.transactions.add_partitions(body.transactional_id, identity, [partition], context.now_ms)
    except ApiError as refused:
        return {"error_code": context.fenced(refused, _FENCED_SINCE)}
    return {}
