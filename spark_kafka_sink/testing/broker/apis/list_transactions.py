"""ListTransactions (66): the transactional ids that the asked node coordinates (KIP-664).

Emulated: the filters by state (unknown names are returned), producer id, duration (version 1) and pattern (version 2),
which an id has to meet all.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.transactions import State, Transaction
from spark_kafka_sink.testing.broker.wire import Fields

_STATES: Final = frozenset(state.value for state in State) | {"Dead", "PrepareEpochFence"}


def handle(context: RequestContext) -> Fields:
    states: Collection[str] = context.body.state_filters
    try:
        context.check_script()
        pattern = _pattern(context)
    except ApiError as refused:
        return {"error_code": refused.error}
    return {
        "unknown_state_filters": [state for state in states if state not in _STATES],
        "transaction_states": [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer_id,
                "transaction_state": each.state.value,
            }
            for each in context.state.transactions.transactions.values()
            if context.coordinates(each.transactional_id)
            and _is_wanted(context, each)
            and pattern.fullmatch(each.transactional_id)
        ],
    }


def _is_wanted(context: RequestContext, transaction: Transaction) -> bool:
    body = context.body
    longest = getattr(body, "duration_filter", -1)
    return (
        context.coordinates(transaction.transactional_id)
        and (not body.state_filters or transaction.state.value in body.state_filters)
        and (not body.producer_id_filters or transaction.producer_id in body.producer_id_filters)
        and (longest < 0 or context.now_ms - transaction.started_ms > longest)
    )


def _pattern(context: RequestContext) -> re.Pattern[str]:
    try:
        return re.compile(getattr(context.body, "transactional_id_pattern", None) or ".*", re.DOTALL)
    except re.error:
        raise ApiError(ErrorCode.invalid_regular_expression) from None
