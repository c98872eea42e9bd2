"""FindCoordinator (10): which node coordinates a group or a transactional id.

Emulated: one key, and from version 4 on many; the first group creates ``__consumer_offsets``, the first transactional
id ``__transaction_state``; the leader of its partition there coordinates each.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.call import Call, endpoint
from spark_kafka_sink.testing.broker.state.cluster import BrokerNode
from spark_kafka_sink.testing.broker.wire import Fields

_GROUP: Final = 0
_TRANSACTION: Final = 1


def handle(call: Call) -> Fields:
    keys = getattr(call.body, "coordinator_keys", None)
    if keys is None:
        return _coordinator(call, call.body.key)
    return {"coordinators": [{"key": key, **_coordinator(call, key)} for key in keys]}


def _coordinator(call: Call, key: str) -> Fields:
    kind = getattr(call.body, "key_type", _GROUP)
    error = call.scripted() or (ErrorCode.none if kind in {_GROUP, _TRANSACTION} else ErrorCode.invalid_request)
    node = call.cluster.coordinator(key) if kind == _TRANSACTION else _group_coordinator(call, key)
    if error or node is None:
        error = error or ErrorCode.coordinator_not_available
        return {"node_id": -1, "host": "", "port": -1, "error_code": error, "error_message": None}
    return {**endpoint(call, node), "error_message": None}


def _group_coordinator(call: Call, group: str) -> BrokerNode | None:
    """None while the group's partition has no leader."""
    return call.cluster.nodes.get(call.state.offsets.partition(group).leader)
