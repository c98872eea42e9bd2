"""ListGroups (16): the groups that the asked node coordinates.

Emulated: groups with members and those that only committed offsets; the filters by state and type (versions 4 and 5).
"""

from __future__ import annotations

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import GroupState
from spark_kafka_sink.testing.broker.wire import Fields

_TYPE = "classic"


def handle(context: RequestContext) -> Fields:
    try:
        context.check_script()
    except ApiError as refused:
        return {"error_code": refused.error}
    states = {each.lower() for each in getattr(context.body, "states_filter", ())}
    types = {each.lower() for each in getattr(context.body, "types_filter", ())}
    with_members = {group.id: (group.protocol_type or "", group.state) for group in context.state.groups.all()}
    groups = dict.fromkeys(context.state.offsets.groups, ("", GroupState.EMPTY)) | with_members
    return {
        "groups": [
            {"group_id": group, "protocol_type": kind, "group_state": state.value, "group_type": _TYPE}
            for group, (kind, state) in groups.items()
            if context.coordinates_group(group)
            and (not states or state.value.lower() in states)
            and (not types or _TYPE in types)
        ]
    }
