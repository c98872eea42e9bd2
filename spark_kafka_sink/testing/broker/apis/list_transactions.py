"""ListTransactions (66): the transactional ids that the asked node coordinates (KIP-664).

Emulated: the filters by state (unknown names are returned), producer id, duration (version 1) and pattern (version 2),
which an id has to meet all.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.call import Call
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.transactions import State, Transaction
from spark_kafka_sink.testing.broker.wire import Fields

_STATES: Final = frozenset(state.value for state in State) | {"Dead", "PrepareEpochFence"}


def handle(call: Call) -> Fields:
    states: Collection[str] = call.body.state_filters
    try:
        call.check_script()
        pattern = _pattern(call)
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
            for each in call.state.transactions.transactions.values()
            if call.coordinates(each.transactional_id)
            and _is_wanted(call, each)
            and pattern.fullmatch(each.transactional_id)
        ],
    }


def _is_wanted(call: Call, transaction: Transaction) -> bool:
    body = call.body
    longest = getattr(body, "duration_filter", -1)
    return (
        call.coordinates(transaction.transactional_id)
        and (not body.state_filters or transaction.state.value in body.state_filters)
        and (not body.producer_id_filters or transaction.producer_id in body.producer_id_filters)
        and (longest < 0 or call.now_ms - transaction.started_ms > longest)
    )


def _pattern(call: Call) -> re.Pattern[str]:
    try:
        return re.compile(getattr(call.body, "transactional_id_pattern", None) or ".*", re.DOTALL)
    except re.error:
        raise ApiError(ErrorCode.invalid_regular_expression) from None
