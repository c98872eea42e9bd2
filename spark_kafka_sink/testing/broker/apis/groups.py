"""Consumer groups: members join, agree on an assignment, stay and leave (JoinGroup, SyncGroup, Heartbeat, LeaveGroup),
and groups are described (ListGroups, DescribeGroups). ``state/groups.py`` has the protocol.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import Delayed, HandlerResult, RequestContext, milliseconds
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Claim, Group, GroupState, Joined, Joining, Synced
from spark_kafka_sink.testing.broker.wire import Fields

_NEEDS_MEMBER_ID_SINCE: Final = 4
_PROTOCOL_NAME_IS_NULLABLE_SINCE: Final = 7
_MAX_WAIT_MS: Final = 1_800_000
"""The timeout of a waiting request. A group completes its requests by its own deadlines, so only a group that is never
looked at again reaches it."""
_MANY_SINCE: Final = 3
_GROUP_TYPE = "classic"
_GROUP_NOT_FOUND_SINCE: Final = 6
_DEAD: Final = "Dead"


def join_group(context: RequestContext) -> HandlerResult:
    """JoinGroup (11): a consumer becomes a member of a group, or joins again after a rebalance.

    Emulated: what ``state/groups.py`` does; MEMBER_ID_REQUIRED from version 4 on (KIP-394). The response waits for the
    other members.
    """
    try:
        context.check_script()
        context.check_group_coordinator(context.body.group_id)
        waiting = context.state.groups.join(context.body.group_id, _joining(context), context.now_ms)
    except ApiError as refused:
        return _joined(context, Joined(refused.error, context.body.member_id))

    def try_complete() -> Fields | None:
        return None if waiting.result is None else _joined(context, waiting.result)

    def expire() -> Fields:
        return _joined(context, Joined(ErrorCode.rebalance_in_progress, context.body.member_id))

    return Delayed(_MAX_WAIT_MS, try_complete, expire)


def _joining(context: RequestContext) -> Joining:
    body = context.body
    session_timeout_ms = milliseconds(body.session_timeout)
    has_rebalance_timeout = hasattr(body, "rebalance_timeout")
    return Joining(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=context.request.client_id or "",
        protocol_type=body.protocol_type,
        protocols={protocol.name: protocol.metadata for protocol in body.protocols},
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout) if has_rebalance_timeout else session_timeout_ms,
        needs_member_id=context.version >= _NEEDS_MEMBER_ID_SINCE,
    )


def _joined(context: RequestContext, joined: Joined) -> Fields:
    no_name = None if context.version >= _PROTOCOL_NAME_IS_NULLABLE_SINCE else ""
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": no_name if joined.protocol is None else joined.protocol,
        "leader": joined.leader,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member, "group_instance_id": instance, "metadata": metadata}
            for member, instance, metadata in joined.members
        ],
    }


def sync_group(context: RequestContext) -> HandlerResult:
    """SyncGroup (14): the leader hands in the assignment, every member gets its part.

    Emulated: the response waits for the leader; protocol type and name are checked from version 5 on.
    """
    body = context.body
    claim = Claim(body.member_id, body.generation_id, getattr(body, "group_instance_id", None))
    protocol = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
    context.check_script()
    context.check_group_coordinator(body.group_id)
    assignments = {assignment.member_id: assignment.assignment for assignment in body.assignments}
    waiting = context.state.groups.known(body.group_id).sync(claim, protocol, assignments, context.now_ms)

    def try_complete() -> Fields | None:
        return None if waiting.result is None else _synced(waiting.result)

    return Delayed(_MAX_WAIT_MS, try_complete, lambda: _synced(Synced(ErrorCode.rebalance_in_progress)))


def _synced(synced: Synced) -> Fields:
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


def heartbeat(context: RequestContext) -> Fields:
    """Heartbeat (12): keeps a member's session, and announces a rebalance (REBALANCE_IN_PROGRESS)."""
    body = context.body
    claim = Claim(body.member_id, body.generation_id, getattr(body, "group_instance_id", None))
    context.check_script()
    context.check_group_coordinator(body.group_id)
    return {"error_code": context.state.groups.known(body.group_id).heartbeat(claim, context.now_ms)}


def leave_group(context: RequestContext) -> Fields:
    """LeaveGroup (13): members leave, the others get their partitions.

    Emulated: one member, and from version 3 on many, by member id or instance id.
    """
    body = context.body
    context.check_script()
    context.check_group_coordinator(body.group_id)
    if context.version < _MANY_SINCE:
        return {"error_code": _leave(context, body.member_id, None)}
    return {
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "error_code": _leave(context, member.member_id, member.group_instance_id),
            }
            for member in body.members
        ]
    }


def _leave(context: RequestContext, member_id: str, instance_id: str | None) -> ErrorCode:
    try:
        context.state.groups.known(context.body.group_id).leave(member_id, instance_id, context.now_ms)
    except ApiError as refused:
        return refused.error
    return ErrorCode.none


def list_groups(context: RequestContext) -> Fields:
    """ListGroups (16): the groups that the asked node coordinates.

    Emulated: groups with members and groups that only committed offsets; the filters by state and type (versions 4 and
    5).
    """
    context.check_script()
    states = {each.lower() for each in getattr(context.body, "states_filter", ())}
    types = {each.lower() for each in getattr(context.body, "types_filter", ())}
    with_members = {group.id: (group.protocol_type or "", group.state) for group in context.state.groups.all()}
    groups = dict.fromkeys(context.state.offsets.groups, ("", GroupState.EMPTY)) | with_members
    return {
        "groups": [
            {"group_id": group, "protocol_type": kind, "group_state": state.value, "group_type": _GROUP_TYPE}
            for group, (kind, state) in groups.items()
            if context.coordinates_group(group)
            and (not states or state.value.lower() in states)
            and (not types or _GROUP_TYPE in types)
        ]
    }


def describe_groups(context: RequestContext) -> Fields:
    """DescribeGroups (15): state, protocol, members and assignments of groups."""
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
    error = ErrorCode.group_id_not_found if context.version >= _GROUP_NOT_FOUND_SINCE else ErrorCode.none
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
                "member_id": member.id,
                "group_instance_id": member.asked.instance_id,
                "client_id": member.asked.client_id,
                "client_host": "/127.0.0.1",
                "member_metadata": member.asked.protocols[protocol] if is_stable else b"",
                "member_assignment": member.assignment if is_stable else b"",
            }
            for member in group.members.values()
        ],
    }
