"""Produce responses are read by hand: what comes out is what kio reads, and nothing a broker sends does harm."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.network.messages import decode_response, response_type, schema
from spark_kafka_sink.producer.produce_api import PartitionResponse, ProduceResponse, TopicIds, read_response

VERSIONS = range(3, 14)
BY_HAND = range(9, 14)
NAMES = ("a", "b" * 200, "ü")
IDS = {name: UUID(int=number) for number, name in enumerate(("t", *NAMES), 1)}
TOPIC_IDS = TopicIds({name: each.bytes for name, each in IDS.items()}, {each.bytes: name for name, each in IDS.items()})


def partition(version: int, index: int, **fields: Any) -> Any:
    given = {"error_code": ErrorCode.none, "base_offset": 1000 + index, "record_errors": (), **fields}
    kind = schema("produce", version).response.PartitionProduceResponse
    known = {field.name for field in dataclasses.fields(kind)}
    return kind(index=index, **{name: value for name, value in given.items() if name in known})


def answer(version: int, topics: dict[str, list[Any]], throttle_ms: int = 0, **fields: Any) -> memoryview:
    module = schema("produce", version).response
    responses = tuple(
        module.TopicProduceResponse(
            **({"name": name} if version < 13 else {"topic_id": IDS[name]}), partition_responses=tuple(each)
        )
        for name, each in topics.items()
    )
    entity = module.ProduceResponse(responses=responses, throttle_time=timedelta(milliseconds=throttle_ms), **fields)
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview((b"\0" if version >= 9 else b"") + buffer.getvalue())


def read(version: int, data: memoryview, requested: int = 2**31) -> ProduceResponse:
    return read_response(version, data, requested, TOPIC_IDS if version >= 13 else None)


def read_by_kio(version: int, data: memoryview) -> ProduceResponse:
    body: Any = decode_response(data, response_type("produce", version))
    nodes = {each.node_id: each for each in getattr(body, "node_endpoints", ())}
    partitions = {}
    for topic in body.responses:
        for each in topic.partition_responses:
            leader = getattr(each, "current_leader", None)
            node = None if leader is None else nodes.get(leader.leader_id)
            name = (
                topic.name if version < 13 else next(name for name, each_id in IDS.items() if each_id == topic.topic_id)
            )
            partitions[name, each.index] = PartitionResponse(
                each.base_offset,
                each.log_append_time,
                each.error_code,
                getattr(each, "error_message", None),
                None if node is None else Node(node.node_id, node.host, node.port, node.rack),
                -1 if leader is None else leader.leader_epoch,
                getattr(each, "log_start_offset", -1) if each.error_code else -1,
                tuple((one.batch_index, one.batch_index_error_message) for one in getattr(each, "record_errors", ())),
            )
    return ProduceResponse(partitions, body.throttle_time)


def any_partition(version: int, index: int, random: Random) -> Any:
    response = schema("produce", version).response
    fields: dict[str, Any] = {}
    if random.random() < 0.4:
        fields["error_code"] = random.choice(list(ErrorCode))
        fields["error_message"] = random.choice([None, "", "why \N{SNOWMAN}", "x" * 300])
        fields["log_start_offset"] = random.choice([-1, 0, 77])
        errors = [
            response.BatchIndexAndErrorMessage(batch_index=row, batch_index_error_message=random.choice([None, "row"]))
            for row in range(random.choice([0, 1, 200]) if version >= 8 else 0)
        ]
        fields["record_errors"] = tuple(errors)
    if version >= 10 and random.random() < 0.3:
        fields["current_leader"] = response.LeaderIdAndEpoch(
            leader_id=random.choice([1, 2, 77]), leader_epoch=random.randrange(9)
        )
    if random.random() < 0.3:
        fields["log_append_time"] = datetime.fromtimestamp(random.randrange(2**31), UTC)
    return partition(version, index, **fields)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_by_hand_is_what_kio_reads(version, seed):
    random = Random(seed)
    topics = {
        name: [any_partition(version, index, random) for index in range(random.choice([0, 1, 3, 300]))]
        for name in random.sample([*NAMES], random.choice([0, 1, 3]))
    }
    endpoints = {}
    if version >= 10 and random.random() < 0.8:
        endpoint = schema("produce", version).response.NodeEndpoint
        endpoints["node_endpoints"] = tuple(
            endpoint(node_id=node, host=f"n{node}", port=9000 + node, rack=random.choice([None, "r"]))
            for node in (1, 2)
        )
    data = answer(version, topics, throttle_ms=random.choice([0, 30]), **endpoints)
    assert read(version, data) == read_by_kio(version, data)


@pytest.mark.parametrize("version", BY_HAND)
def test_an_unknown_code_is_an_unknown_server_error_of_its_partition_and_its_number_is_told(version):
    code = SimpleNamespace(value=200)
    data = answer(version, {"t": [partition(version, 0), partition(version, 1, error_code=code, base_offset=-1)]})
    partitions = read(version, data).partitions
    assert partitions["t", 0] == PartitionResponse(1000)
    assert partitions["t", 1].error_code is ErrorCode.unknown_server_error
    assert partitions["t", 1].error_message == "the broker's error code is 200, which this client does not know"


@pytest.mark.parametrize("version", VERSIONS)
def test_incident_an_answer_that_names_a_partition_twice_passed_for_one(version):
    data = answer(version, {"t": [partition(version, 0), partition(version, 0)]})
    with pytest.raises(NetworkError, match="has a partition twice"):
        read(version, data)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_answer_is_an_error_wherever_it_is_cut(version):
    data = answer(version, {"t": [partition(version, 0), partition(version, 1)]})
    for end in range(len(data)):
        with pytest.raises(NetworkError):
            read(version, data[:end])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_has_no_more_partitions_than_its_request(version):
    data = answer(version, {"t": [partition(version, 0), partition(version, 1)]})
    with pytest.raises(NetworkError, match="at most 1 are possible"):
        read(version, data, 1)


def test_an_id_that_the_request_does_not_have_is_an_error():
    data = answer(13, {"t": [partition(13, 0)]})
    with pytest.raises(NetworkError, match="the request has no topic with id 0000"):
        read_response(13, data, 2**31, TopicIds({}, {}))
