"""DeleteTopics (20).

Emulated: by name or id; gone at once with records, producers and transactions' interest in them.
"""

from __future__ import annotations

import uuid

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Fields:
    by_state = getattr(context.body, "topics", None)
    if by_state is not None:
        return {"responses": [_delete(context, each.name, each.topic_id) for each in by_state]}
    return {"responses": [_delete(context, name, None) for name in context.body.topic_names]}


def _delete(context: RequestContext, name: str | None, topic_id: uuid.UUID | None) -> Fields:
    if name is None:
        topic = context.cluster.topic_by_id(topic_id)
        if topic is None:
            return {"name": None, "topic_id": topic_id, "error_code": ErrorCode.unknown_topic_id}
        name = topic.name
    try:
        context.check_script(name)
        topic = context.cluster.delete_topic(name)
    except ApiError as refused:
        return {"name": name, "topic_id": topic_id, "error_code": refused.error, "error_message": refused.message}
    return {"name": name, "topic_id": topic.id, "error_code": ErrorCode.none}
