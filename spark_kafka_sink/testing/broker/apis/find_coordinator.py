"""FindCoordinator (10): which node coordinates a group or a transactional id.

Emulated: one key, and from version 4 on many; the first group creates ``__consumer_offsets``, the first transactional
id ``__transaction_state``; the leader of its partition there coordinates each.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext, address
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode
from spark_kafka_sink.testing.broker.wire import Fields

_GROUP: Final = 0
_TRANSACTION: Final = 1


def handle(context: RequestContext) -> Fields:
    keys = getattr(context.body, "coordinator_keys", None)
    if keys is None:
        return _coordinator(context, context.body.key)
    return {"coordinators": [{"key": key, **_coordinator(context, key)} for key in keys]}


def _coordinator(context: RequestContext, key: str) -> Fields:
    kind = getattr(context.body, "key_type", _GROUP)
    error = context.scripted() or (ErrorCode.none if kind in {_GROUP, _TRANSACTION} else ErrorCode.invalid_request)
    node = context.cluster.coordinator(key) if kind == _TRANSACTION else _group_coordinator(context, key)
    if error or node is None:
        error = error or ErrorCode.coordinator_not_available
        return {"node_id": -1, "host": "", "port": -1, "error_code": error, "error_message": None}
    return {**address(context, node), "error_message": None}


def _group_coordinator(context: RequestContext, group: str) -> BrokerNode | None:
    """None while the group's partition has no leader."""
    return context.cluster.nodes.get(context.state.offsets.partition(group).leader)
