"""FindCoordinator (10): which node coordinates a group or a transactional id.

Emulated: one key, and from version 4 on many; the node stays the same until a node dies or comes back. Not emulated:
the time in which ``__consumer_offsets`` and ``__transaction_state`` are created; share groups.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.call import Call, endpoint
from spark_kafka_sink.testing.broker.wire import Fields


def handle(call: Call) -> Fields:
    keys = getattr(call.body, "coordinator_keys", None)
    if keys is None:
        return _coordinator(call, call.body.key)
    return {"coordinators": [{"key": key, **_coordinator(call, key)} for key in keys]}


def _coordinator(call: Call, key: str) -> Fields:
    node = call.cluster.coordinator(key)
    error = call.scripted()
    if error or node is None:
        error = error or ErrorCode.coordinator_not_available
        return {"node_id": -1, "host": "", "port": -1, "error_code": error, "error_message": None}
    return {**endpoint(node), "error_message": None}
