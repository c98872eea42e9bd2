"""Client and TestBroker read and write what Kafka's own jar writes: kio on both sides could be wrong on both."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import UNKNOWN_OFFSET, Node, TopicPartition
from spark_kafka_sink.network.api_versions import SUPPORTED_VERSIONS, camel_case
from spark_kafka_sink.network.messages import API_KEYS, decode_response, encode_request, response_type
from spark_kafka_sink.producer.produce_api import (
    PartitionResponse,
    ProduceRequest,
    TopicIds,
    read_response,
)
from spark_kafka_sink.testing.broker import wire
from tests.recorded import FILES
from tests.recorded.golden_bytes import CLIENT_ID, CORRELATION_ID


def _golden(kind):
    """Parameters of tests: API, version, values by Kafka's names, bytes."""
    for line in (FILES / "golden_bytes.txt").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.isdigit():
            message, values = name, ast.literal_eval(rest)
        elif message.endswith(kind):
            api = next(api for api in SUPPORTED_VERSIONS if camel_case(api) + kind == message)
            yield pytest.param(api, int(name), values, bytes.fromhex(rest), id=f"{api} {name}")


RENAMED = {"generationIdOrMemberEpoch": "generationId"}
"""Kafka's newest names → those of kio's schemas, which are older."""

REQUESTS, RESPONSES = [*_golden("Request")], [*_golden("Response")]


def _by_kios_names(value):
    if isinstance(value, dict):
        values = {_snake_case(RENAMED.get(name, name)): _by_kios_names(each) for name, each in value.items()}
        return {name.removesuffix("_ms"): each for name, each in values.items()} | values
    if isinstance(value, list):
        return [_by_kios_names(each) for each in value]
    return UUID(bytes=value) if isinstance(value, bytes) and len(value) == 16 else value


def _snake_case(name):
    return re.sub("(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("messages", [REQUESTS, RESPONSES], ids=["requests", "responses"])
def test_every_version_that_the_client_speaks_is_there(messages):
    spoken = {(api, version) for api, of in SUPPORTED_VERSIONS.items() for version in range(of.lowest, of.highest + 1)}
    assert {each.values[:2] for each in messages} == spoken


@pytest.mark.parametrize(("api", "version", "values", "frame"), REQUESTS)
def test_the_broker_reads_kafkas_requests_and_the_client_writes_the_same(api, version, values, frame):
    client_id, request = wire.read_request(frame, wire.read_head(frame))
    assert client_id == CLIENT_ID
    assert request == wire.build(load_request_schema(API_KEYS[api], version), _by_kios_names(values))
    assert encode_request(request, CORRELATION_ID, CLIENT_ID)[4:] == frame


@pytest.mark.parametrize(("api", "version", "values", "frame"), RESPONSES)
def test_the_client_reads_kafkas_responses_and_the_broker_writes_the_same(api, version, values, frame):
    fields, kind = _by_kios_names(values), response_type(api, version)
    assert decode_response(memoryview(frame)[4:], kind) == wire.build(kind, fields)
    head = wire.RequestHead(API_KEYS[api], version, CORRELATION_ID)
    assert wire.encode_response(head, fields)[4:] == frame


def _name(topic):
    return topic["name"] if "name" in topic else topic["topicId"].hex()


def _ids(topics):
    """The ids of topics that have no names; None where they have names."""
    of = {_name(topic): topic["topicId"] for topic in topics if "topicId" in topic}
    return TopicIds(of, {topic_id: name for name, topic_id in of.items()}) if of else None


@pytest.mark.parametrize(("api", "version", "values", "frame"), [each for each in REQUESTS if "produce" in each.values])
def test_produce_is_written_by_hand_as_kafka_writes_it(api, version, values, frame):
    topics = values["topicData"]
    batches = [
        SimpleNamespace(
            partition=TopicPartition(_name(topic), each["index"]),
            header=each["records"][:2],
            payload=[each["records"][2:]],
            size=len(each["records"]),
        )
        for topic in topics
        for each in topic["partitionData"]
    ]
    config = SimpleNamespace(acks=values["acks"], request_timeout_ms=values["timeoutMs"])
    request = ProduceRequest(batches, config, print, transactional_id=values["transactionalId"], topic_ids=_ids(topics))
    assert b"".join(request.build(version, CORRELATION_ID, CLIENT_ID))[4:] == frame


@pytest.mark.parametrize(
    ("api", "version", "values", "frame"), [each for each in RESPONSES if "produce" in each.values]
)
def test_responses_to_produce_are_read_by_hand_as_kafka_writes_them(api, version, values, frame):
    topics = values["responses"]
    nodes = {
        each["nodeId"]: Node(each["nodeId"], each["host"], each["port"], each["rack"])
        for each in values.get("nodeEndpoints", [])
    }
    expected = {}
    for topic in topics:
        for each in topic["partitionResponses"]:
            leader = each.get("currentLeader", {"leaderId": -1, "leaderEpoch": -1})
            expected[_name(topic), each["index"]] = PartitionResponse(
                each["baseOffset"],
                each["logAppendTimeMs"],
                ErrorCode(each["errorCode"]),
                each.get("errorMessage"),
                nodes.get(leader["leaderId"]),
                leader["leaderEpoch"],
                each.get("logStartOffset", UNKNOWN_OFFSET) if each["errorCode"] else UNKNOWN_OFFSET,
                tuple((one["batchIndex"], one["batchIndexErrorMessage"]) for one in each.get("recordErrors", ())),
            )
    response = read_response(version, memoryview(frame)[4:], topic_ids=_ids(topics))
    assert response.partitions == expected
    assert response.throttle_time == timedelta(milliseconds=values["throttleTimeMs"])
