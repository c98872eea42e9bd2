"""The response to a request that is refused, or that no handler could finish (``AbstractRequest.getErrorResponse``).

Each API names the error in its own form: once for the request, or once for each topic, partition, key or resource that
was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.wire import Fields, ReceivedRequest

_FETCH_TOP_LEVEL_SINCE: Final = 13
_PRODUCE_TOPIC_IDS_SINCE: Final = 13
_OFFSET_FETCH_TOP_LEVEL_SINCE: Final = 2
_OFFSET_FETCH_GROUPS_SINCE: Final = 8
_ADD_PARTITIONS_TOP_LEVEL_SINCE: Final = 4

_Form: TypeAlias = Callable[[ReceivedRequest, ErrorCode], Fields | None]


def error_response(request: ReceivedRequest, error: ErrorCode) -> Fields | None:
    """The response's fields; None for a Produce with acks=0, which has no response, so that the connection is
    closed."""
    return _FORMS.get(request.api, _once)(request, error)


def _once(_: ReceivedRequest, error: ErrorCode) -> Fields:
    return {"error_code": error}


def _partitions(topics: Iterable[Any], error: ErrorCode, unknown: Mapping[str, object], **names: str) -> list[Fields]:
    """The form of an API whose response has the error for each partition, nested by topic. ``names``: the names of
    topic, partitions and index in request and response."""
    name, partitions, index = names["name"], names["partitions"], names["index"]
    return [
        {
            name: getattr(topic, name),
            names.get("responses", partitions): [
                {index: _index(asked, names.get("asked", index)), "error_code": error, **unknown}
                for asked in getattr(topic, partitions)
            ],
        }
        for topic in topics
    ]


def _index(asked: Any, name: str) -> int:
    return asked if isinstance(asked, int) else getattr(asked, name)


def _each(answers: str, asked: str, *names: str, **rest: object) -> _Form:
    """The form of an API whose response has the error for each asked item, with these names repeated from the
    request."""

    def form(request: ReceivedRequest, error: ErrorCode) -> Fields:
        each = getattr(request.body, asked) or ()
        return {answers: [{**_named(one, names), "error_code": error, **rest} for one in each]}

    return form


def _named(asked: Any, names: tuple[str, ...]) -> Fields:
    return {name: asked if isinstance(asked, str) else getattr(asked, name, None) for name in names}


def _produce(request: ReceivedRequest, error: ErrorCode) -> Fields | None:
    if request.body.acks == 0:
        return None
    name = "name" if request.version < _PRODUCE_TOPIC_IDS_SINCE else "topic_id"
    unknown: Fields = {"base_offset": -1, "error_message": None}
    names = {"name": name, "partitions": "partition_data", "responses": "partition_responses", "index": "index"}
    return {"responses": _partitions(request.body.topic_data, error, unknown, **names)}


def _fetch(request: ReceivedRequest, error: ErrorCode) -> Fields:
    if request.version >= _FETCH_TOP_LEVEL_SINCE:
        return {"error_code": error, "responses": []}
    unknown: Fields = {"high_watermark": -1, "aborted_transactions": None, "records": b""}
    names = {"name": "topic", "partitions": "partitions", "index": "partition_index", "asked": "partition"}
    return {"error_code": error, "responses": _partitions(request.body.topics, error, unknown, **names)}


def _each_partition(**unknown: object) -> _Form:
    def form(request: ReceivedRequest, error: ErrorCode) -> Fields:
        names = {"name": "name", "partitions": "partitions", "index": "partition_index"}
        return {"topics": _partitions(request.body.topics, error, unknown, **names)}

    return form


def _offset_fetch(request: ReceivedRequest, error: ErrorCode) -> Fields:
    if request.version >= _OFFSET_FETCH_GROUPS_SINCE:
        return {"groups": [{"group_id": asked.group_id, "error_code": error} for asked in request.body.groups]}
    if request.version >= _OFFSET_FETCH_TOP_LEVEL_SINCE:
        return {"error_code": error}
    unknown: Fields = {"committed_offset": -1, "metadata": ""}
    names = {"name": "name", "partitions": "partition_indexes", "responses": "partitions", "index": "partition_index"}
    return {"topics": _partitions(request.body.topics, error, unknown, **names)}


def _find_coordinator(request: ReceivedRequest, error: ErrorCode) -> Fields:
    nowhere: Fields = {"error_code": error, "error_message": None, "node_id": -1, "host": "", "port": -1}
    keys = getattr(request.body, "coordinator_keys", None)
    return nowhere if keys is None else {"coordinators": [{"key": key, **nowhere} for key in keys]}


def _delete_topics(request: ReceivedRequest, error: ErrorCode) -> Fields:
    failed: Fields = {"error_code": error, "error_message": None}
    by_id = getattr(request.body, "topics", None)
    if by_id is None:
        return {"responses": [{"name": name, **failed} for name in request.body.topic_names]}
    return {"responses": [{"name": each.name, "topic_id": each.topic_id, **failed} for each in by_id]}


def _identity(_: ReceivedRequest, error: ErrorCode) -> Fields:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}


def _add_partitions_to_txn(request: ReceivedRequest, error: ErrorCode) -> Fields:
    if request.version >= _ADD_PARTITIONS_TOP_LEVEL_SINCE:
        return {"error_code": error}
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": error} for index in topic.partitions
                ],
            }
            for topic in request.body.v3_and_below_topics
        ]
    }


def _join_group(request: ReceivedRequest, error: ErrorCode) -> Fields:
    return {"error_code": error, "generation_id": -1, "member_id": request.body.member_id}


_FORMS: Final[Mapping[str, _Form]] = MappingProxyType(
    {
        "Produce": _produce,
        "Fetch": _fetch,
        "ListOffsets": _each_partition(timestamp=-1, offset=-1),
        "Metadata": _each("topics", "topics", "name", "topic_id"),
        "OffsetCommit": _each_partition(),
        "OffsetFetch": _offset_fetch,
        "FindCoordinator": _find_coordinator,
        "JoinGroup": _join_group,
        "DescribeGroups": _each("groups", "groups", "group_id", error_message=None),
        "CreateTopics": _each(
            "topics", "topics", "name", error_message=None, configs=None, num_partitions=-1, replication_factor=-1
        ),
        "DeleteTopics": _delete_topics,
        "InitProducerId": _identity,
        "AddPartitionsToTxn": _add_partitions_to_txn,
        "EndTxn": _identity,
        "TxnOffsetCommit": _each_partition(),
        "DescribeConfigs": _each(
            "results", "resources", "resource_type", "resource_name", error_message=None, configs=[]
        ),
        "CreatePartitions": _each("results", "topics", "name", error_message=None),
        "DescribeTransactions": _each("transaction_states", "transactional_ids", "transactional_id"),
        "DescribeTopicPartitions": _each("topics", "topics", "name", partitions=[]),
    }
)
"""The forms of APIs. An API without a form (ApiVersions, Heartbeat, ListTransactions, …) names the error once."""
