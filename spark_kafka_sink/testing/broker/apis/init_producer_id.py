"""InitProducerId (22).

Emulated: a new id for an idempotent producer; for a transactional one the next epoch of its id, after the transaction
left open was aborted (CONCURRENT_TRANSACTIONS until then), and KIP-360's continuing with a known id and epoch.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.testing.broker.apis.fencing import fenced
from spark_kafka_sink.testing.broker.call import Call, milliseconds
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity
from spark_kafka_sink.testing.broker.wire import Fields

_FENCED_SINCE: Final = 4


def handle(call: Call) -> Fields:
    try:
        call.check_script()
        producer_id, epoch = _init(call)
    except ApiError as refused:
        return {"error_code": fenced(call, refused, _FENCED_SINCE), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": epoch}


def _init(call: Call) -> ProducerIdentity:
    transactional_id = call.body.transactional_id
    if transactional_id is None:
        return ProducerIdentity(call.cluster.next_producer_id(), 0)
    call.check_coordinator(transactional_id)
    given = ProducerIdentity(getattr(call.body, "producer_id", -1), getattr(call.body, "producer_epoch", -1))
    return call.state.transactions.init_producer_id(
        transactional_id,
        milliseconds(call.body.transaction_timeout),
        None if given.producer_id == -1 else given,
        call.now_ms,
    )
