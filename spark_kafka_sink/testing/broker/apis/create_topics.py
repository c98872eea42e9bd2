"""CreateTopics (19).

Emulated: counts, replication factor, settings, validate_only, and every topic's own error.
Settings may be refused (``TestBroker.refuse_topic_configs``).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import Topic
from spark_kafka_sink.testing.broker.state.config import TOPIC_DEFAULTS, as_text
from spark_kafka_sink.testing.broker.wire import Fields

_TOPIC_CONFIG = 1
_DEFAULT_CONFIG = 5


def handle(context: RequestContext) -> Fields:
    return {"topics": [_create(context, asked) for asked in context.body.topics]}


def _create(context: RequestContext, asked: Any) -> Fields:
    config = {setting.name: setting.value for setting in asked.configs if setting.value is not None}
    try:
        context.check_script(asked.name)
        if asked.assignments:
            raise ApiError(ErrorCode.invalid_request, "TestBroker places replicas itself")
        context.cluster.limits.check(config)
        topic = context.cluster.create_topic(
            asked.name, asked.num_partitions, asked.replication_factor, config, dry=context.body.validate_only
        )
    except ApiError as refused:
        return {"name": asked.name, "error_code": refused.error, "error_message": refused.message}
    return {
        "name": asked.name,
        "topic_id": topic.id,
        "error_message": None,
        "num_partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": [_setting(topic, name) for name in TOPIC_DEFAULTS],
    }


def _setting(topic: Topic, name: str) -> Fields:
    source = _TOPIC_CONFIG if name in topic.settings.own else _DEFAULT_CONFIG
    return {"name": name, "value": as_text(topic.settings[name]), "config_source": source}
