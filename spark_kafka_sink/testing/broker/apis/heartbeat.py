"""Heartbeat (12): keeps a member's session, and tells it of a rebalance (REBALANCE_IN_PROGRESS)."""

from __future__ import annotations

from spark_kafka_sink.testing.broker.call import Call
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim
from spark_kafka_sink.testing.broker.wire import Fields


def handle(call: Call) -> Fields:
    body = call.body
    claim = Claim(body.member_id, body.generation_id, getattr(body, "group_instance_id", None))
    try:
        call.check_script()
        call.check_group_coordinator(body.group_id)
        return {"error_code": call.state.groups.known(body.group_id).heartbeat(claim, call.now_ms)}
    except ApiError as refused:
        return {"error_code": refused.error}
