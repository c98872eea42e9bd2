"""JoinGroup (11): a consumer becomes a member of a group, or one again after a rebalance.

Emulated: what ``state/groups.py`` does; MEMBER_ID_REQUIRED from version 4 on (KIP-394). The response waits for the
other members.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import Delayed, RequestContext, Response, milliseconds
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.groups import Joined, Joining
from spark_kafka_sink.testing.broker.wire import Fields

_NEEDS_MEMBER_ID_SINCE: Final = 4
_PROTOCOL_NAME_IS_NULLABLE_SINCE: Final = 7
LONGEST_WAIT_MS: Final = 1_800_000
"""A group completes its requests by its own deadlines; this one is for a group that is never looked at again."""


def handle(context: RequestContext) -> Response:
    try:
        context.check_script()
        context.check_group_coordinator(context.body.group_id)
        waiting = context.state.groups.join(context.body.group_id, _asked(context), context.now_ms)
    except ApiError as refused:
        return _response(context, Joined(refused.error, context.body.member_id))

    def try_complete() -> Fields | None:
        return None if waiting.result is None else _response(context, waiting.result)

    def expire() -> Fields:
        return _response(context, Joined(ErrorCode.rebalance_in_progress, context.body.member_id))

    return Delayed(LONGEST_WAIT_MS, try_complete, expire)


def _asked(context: RequestContext) -> Joining:
    body = context.body
    session_timeout_ms = milliseconds(body.session_timeout)
    has_rebalance_timeout = hasattr(body, "rebalance_timeout")
    return Joining(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=context.request.client_id or "",
        protocol_type=body.protocol_type,
        protocols={each.name: each.metadata for each in body.protocols},
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout) if has_rebalance_timeout else session_timeout_ms,
        needs_member_id=context.version >= _NEEDS_MEMBER_ID_SINCE,
    )


def _response(context: RequestContext, joined: Joined) -> Fields:
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
