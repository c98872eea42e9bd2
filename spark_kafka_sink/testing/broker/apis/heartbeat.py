"""Heartbeat (12): keeps a member's session, and tells it of a rebalance (REBALANCE_IN_PROGRESS)."""

from __future__ import annotations

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Fields:
    body = context.body
    claim = Claim(body.member_id, body.generation_id, getattr(body, "group_instance_id", None))
    try:
        context.check_script()
        context.check_group_coordinator(body.group_id)
        return {"error_code": context.state.groups.known(body.group_id).heartbeat(claim, context.now_ms)}
    except ApiError as refused:
        return {"error_code": refused.error}
