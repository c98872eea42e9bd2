"""LeaveGroup (13): members leave, the others get their partitions.

Emulated: one member, and from version 3 on many, also by instance id.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import Fields

_MANY_SINCE: Final = 3


def handle(context: RequestContext) -> Fields:
    body = context.body
    try:
        context.check_script()
        context.check_group_coordinator(body.group_id)
    except ApiError as refused:
        return {"error_code": refused.error}
    if context.version < _MANY_SINCE:
        return {"error_code": _leave(context, body.member_id, None)}
    return {
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "error_code": _leave(context, each.member_id, each.group_instance_id),
            }
            for each in body.members
        ]
    }


def _leave(context: RequestContext, member_id: str, instance_id: str | None) -> ErrorCode:
    try:
        context.state.groups.known(context.body.group_id).leave(member_id, instance_id, context.now_ms)
    except ApiError as refused:
        return refused.error
    return ErrorCode.none
