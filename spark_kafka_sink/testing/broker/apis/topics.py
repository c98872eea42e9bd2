"""The APIs that administer topics: CreateTopics, DeleteTopics, CreatePartitions, and DescribeConfigs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import RequestContext
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.cluster import Topic
from spark_kafka_sink.testing.broker.state.config import BROKER_DEFAULTS, TOPIC_DEFAULTS, Setting, as_text
from spark_kafka_sink.testing.broker.wire import Fields

_SET_ON_TOPIC = 1
_DEFAULT = 5
_TOPIC = 2
_BROKER = 4
_SET_ON_BROKER = 4


def create_topics(context: RequestContext) -> Fields:
    """CreateTopics (19).

    Emulated: counts, replication factor, settings, validate_only, and every topic's own error. Settings may be refused
    (``TestBroker.refuse_topic_configs``).
    """
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
    source = _SET_ON_TOPIC if name in topic.settings.own else _DEFAULT
    return {"name": name, "value": as_text(topic.settings[name]), "config_source": source}


def delete_topics(context: RequestContext) -> Fields:
    """DeleteTopics (20).

    Emulated: by name or id; gone at once with records, producers and transactions' interest in them.
    """
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


def create_partitions(context: RequestContext) -> Fields:
    """CreatePartitions (37).

    Emulated: a higher count, validate_only, each topic's own error.
    """
    return {"results": [_extend(context, asked) for asked in context.body.topics]}


def _extend(context: RequestContext, asked: Any) -> Fields:
    try:
        context.check_script(asked.name)
        context.cluster.create_partitions(asked.name, asked.count, dry=context.body.validate_only)
    except ApiError as refused:
        return {"name": asked.name, "error_code": refused.error, "error_message": refused.message}
    return {"name": asked.name, "error_code": ErrorCode.none}


def describe_configs(context: RequestContext) -> Fields:
    """DescribeConfigs (32).

    Emulated: topics, and the few broker settings TestBroker has, with value and source. Settings may be hidden
    (``TestBroker.hide_configs``).
    """
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
