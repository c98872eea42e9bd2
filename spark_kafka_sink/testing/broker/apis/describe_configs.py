"""DescribeConfigs (32).

Emulated: topics, and the few broker settings TestBroker has, with value and source.
Settings may be hidden (``TestBroker.hide_configs``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.config import BROKER_DEFAULTS, TOPIC_DEFAULTS, Setting, as_text
from spark_kafka_sink.testing.broker.wire import Fields

_TOPIC = 2
_BROKER = 4
_SET_ON_TOPIC = 1
_SET_ON_BROKER = 4
_DEFAULT = 5


def handle(context: RequestContext) -> Fields:
    return {"results": [_describe(context, resource) for resource in context.body.resources]}


def _describe(context: RequestContext, resource: Any) -> Fields:
    named: Fields = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        context.check_script(resource.resource_name)
        configs = list(_configs(context, resource))
    except ApiError as refused:
        return {**named, "error_code": refused.error, "error_message": refused.message}
    wanted, hidden = resource.configuration_keys, context.cluster.limits.hidden
    return {
        **named,
        "error_message": None,
        "configs": [
            config for config in configs if (not wanted or config["name"] in wanted) and config["name"] not in hidden
        ],
    }


def _configs(context: RequestContext, resource: Any) -> Iterable[Fields]:
    if resource.resource_type == _TOPIC:
        topic = context.cluster.topics.get(resource.resource_name)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        return [
            _config(name, topic.settings[name], _SET_ON_TOPIC if name in topic.settings.own else _DEFAULT)
            for name in TOPIC_DEFAULTS
        ]
    if resource.resource_type == _BROKER:
        config = context.cluster.config
        return [
            _config(name, config[name], _DEFAULT if config[name] == default else _SET_ON_BROKER)
            for name, default in BROKER_DEFAULTS.items()
        ]
    raise ApiError(
        ErrorCode.invalid_request, f"TestBroker describes topics and brokers only, not type {resource.resource_type}"
    )


def _config(name: str, value: Setting, source: int) -> Fields:
    return {
        "name": name,
        "value": as_text(value),
        "read_only": source != _SET_ON_TOPIC,
        "config_source": source,
        "documentation": None,
    }
