"""SyncGroup (14): the leader hands in the assignment, every member gets its part.

Emulated: the response waits for the leader; protocol type and name are checked from version 5 on.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.apis.join_group import LONGEST_WAIT_MS
from spark_kafka_sink.testing.broker.request_context import Delayed, RequestContext, Response
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim, Synced
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Response:
    body = context.body
    claim = Claim(body.member_id, body.generation_id, getattr(body, "group_instance_id", None))
    protocol = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
    try:
        context.check_script()
        context.check_group_coordinator(body.group_id)
        assignments = {each.member_id: each.assignment for each in body.assignments}
        waiting = context.state.groups.known(body.group_id).sync(claim, protocol, assignments, context.now_ms)
    except ApiError as refused:
        return _response(Synced(refused.error))

    def try_complete() -> Fields | None:
        return None if waiting.result is None else _response(waiting.result)

    return Delayed(LONGEST_WAIT_MS, try_complete, lambda: _response(Synced(ErrorCode.rebalance_in_progress)))


def _response(synced: Synced) -> Fields:
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }
