"""EndTxn (26): commit or abort.

Emulated: the transitions of both transaction versions (``END_TXN_V1``, ``END_TXN_V2``), repeated requests, the bumped
epoch in the response from version 5 on. The markers are in the logs before the response, unless the script holds them.
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.transactions import ProducerIdentity
from spark_kafka_sink.testing.broker.wire import Fields

_FENCED_SINCE: Final = 2
_BUMPS_SINCE: Final = 5


def handle(context: RequestContext) -> Fields:
    body = context.body
    try:
        context.check_script()
        context.check_coordinator(body.transactional_id)
        producer_id, epoch = context.state.transactions.end(
            body.transactional_id,
            ProducerIdentity(body.producer_id, body.producer_epoch),
            committed=body.committed,
            bump=context.version >= _BUMPS_SINCE,
            now_ms=context.now_ms,
        )
    except ApiError as refused:
        return {"error_code": context.fenced(refused, _FENCED_SINCE), "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": epoch}
