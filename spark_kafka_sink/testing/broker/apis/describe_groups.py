"""DescribeGroups (15): state, protocol, members and assignments of groups."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Group, GroupState
from spark_kafka_sink.testing.broker.wire import Fields

_NOT_FOUND_SINCE: Final = 6
_DEAD: Final = "Dead"


def handle(context: RequestContext) -> Fields:
    return {"groups": [_described(context, group_id) for group_id in context.body.groups]}


def _described(context: RequestContext, group_id: str) -> Fields:
    named: Fields = {"group_id": group_id, "error_message": None}
    try:
        context.check_script()
        context.check_group_coordinator(group_id)
    except ApiError as refused:
        return {**named, "error_code": refused.error}
    group = context.state.groups.get(group_id)
    if group is not None:
        return {**named, **_members(group)}
    if context.state.offsets.of(group_id):
        return {**named, "group_state": GroupState.EMPTY.value}
    error = ErrorCode.group_id_not_found if context.version >= _NOT_FOUND_SINCE else ErrorCode.none
    message = f"Group {group_id} not found." if error else None
    return {"group_id": group_id, "error_code": error, "error_message": message, "group_state": _DEAD}


def _members(group: Group) -> Fields:
    is_stable = group.state is GroupState.STABLE
    protocol = (group.protocol or "") if is_stable else ""
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol,
        "members": [
            {
                "member_id": each.id,
                "group_instance_id": each.asked.instance_id,
                "client_id": each.asked.client_id,
                "client_host": "/127.0.0.1",
                "member_metadata": each.asked.protocols[protocol] if is_stable else b"",
                "member_assignment": each.assignment if is_stable else b"",
            }
            for each in group.members.values()
        ],
    }
