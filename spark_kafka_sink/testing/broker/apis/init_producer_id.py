"""InitProducerId (22).

Emulated: a new id for an idempotent producer; for a transactional one the next epoch of its id, after the transaction
left open was aborted (CONCURRENT_TRANSACTIONS until then), and KIP-360's continuing with a known id and epoch.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.testing.broker.request_context import RequestContext, milliseconds
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity
from spark_kafka_sink.testing.broker.wire import Fields

_FENCED_SINCE: Final = 4


def handle(context: RequestContext) -> Fields:
    try:
        context.check_script()
        producer_id, epoch = _init(context)
    except ApiError as refused:
        return {"error_code": context.fenced(refused, _FENCED_SINCE), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": epoch}


def _init(context: RequestContext) -> ProducerIdentity:
    transactional_id = context.body.transactional_id
    if transactional_id is None:
        return ProducerIdentity(context.cluster.next_producer_id(), 0)
    context.check_coordinator(transactional_id)
    given = ProducerIdentity(getattr(context.body, "producer_id", -1), getattr(context.body, "producer_epoch", -1))
    return context.state.transactions.init_producer_id(
        transactional_id,
        milliseconds(context.body.transaction_timeout),
        None if given.producer_id == -1 else given,
        context.now_ms,
    )
