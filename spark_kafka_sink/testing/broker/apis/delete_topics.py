"""DeleteTopics (20).

Emulated: by name or id; gone at once with records, producers and transactions' interest in them.
"""

from __future__ import annotations

import uuid

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.call import Call
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.wire import Fields


def handle(call: Call) -> Fields:
    by_state = getattr(call.body, "topics", None)
    if by_state is not None:
        return {"responses": [_delete(call, each.name, each.topic_id) for each in by_state]}
    return {"responses": [_delete(call, name, None) for name in call.body.topic_names]}


def _delete(call: Call, name: str | None, topic_id: uuid.UUID | None) -> Fields:
    if name is None:
        topic = call.cluster.topic_by_id(topic_id)
        if topic is None:
            return {"name": None, "topic_id": topic_id, "error_code": ErrorCode.unknown_topic_id}
        name = topic.name
    try:
        call.check_script(name)
        topic = call.cluster.delete_topic(name)
    except ApiError as refused:
        return {"name": name, "topic_id": topic_id, "error_code": refused.error, "error_message": refused.message}
    return {"name": name, "topic_id": topic.id, "error_code": ErrorCode.none}
