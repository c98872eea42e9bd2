"""The usual answer is read by hand: it must say what kio's entity says, and everything else must be left to kio."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from spark_kafka_sink.errors import NetworkError
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.codec import schema
from spark_kafka_sink.sender import produce_api
from spark_kafka_sink.sender.produce_api import PartitionResponse, read_response

VERSIONS = (9, 10, 11, 12)


def partition(version: int, index: int, **fields: Any) -> Any:
    given = {"error_code": ErrorCode.none, "base_offset": 1000 + index, "record_errors": (), **fields}
    return schema("produce", version).response.PartitionProduceResponse(index=index, **given)


def answer(version: int, topics: dict[str, list[Any]], throttle_ms: int = 0, **fields: Any) -> memoryview:
    module = schema("produce", version).response
    responses = tuple(
        module.TopicProduceResponse(name=name, partition_responses=tuple(each)) for name, each in topics.items()
    )
    entity = module.ProduceResponse(responses=responses, throttle_time=timedelta(milliseconds=throttle_ms), **fields)
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return memoryview(b"\0" + buffer.getvalue())


@pytest.mark.parametrize("version", VERSIONS)
def test_successes_read_by_hand_are_what_kio_reads(version, monkeypatch):
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    data = answer(version, {
        "a": [partition(version, index) for index in range(300)],
        "ü" * 200: [partition(version, 7, log_append_time=at)],
    }, throttle_ms=30)  # fmt: skip
    by_kio = produce_api._read_entity(version, data)
    monkeypatch.setattr(produce_api, "_read_entity", None)
    by_hand = read_response(version, data)
    assert by_hand == by_kio
    assert by_hand.partitions["ü" * 200, 7] == PartitionResponse(1007, 1_700_000_000_000)
    assert by_hand.throttle_time == timedelta(milliseconds=30)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_failure_among_successes_is_read_with_its_message(version):
    refused = partition(version, 1, error_code=ErrorCode.message_too_large, base_offset=-1, error_message="too large")
    partitions = read_response(version, answer(version, {"t": [partition(version, 0), refused]})).partitions
    assert partitions["t", 0].error_code is ErrorCode.none
    assert partitions["t", 1][2:4] == (ErrorCode.message_too_large, "too large")


def test_a_broker_that_leads_no_more_says_who_does():
    module = schema("produce", 10).response
    moved = partition(10, 0, error_code=ErrorCode.not_leader_or_follower, base_offset=-1,
                      current_leader=module.LeaderIdAndEpoch(leader_id=2, leader_epoch=5))  # fmt: skip
    endpoint = module.NodeEndpoint(node_id=2, host="n2", port=9092, rack=None)
    (got,) = read_response(10, answer(10, {"t": [moved]}, node_endpoints=(endpoint,))).partitions.values()
    assert (got.leader, got.leader_epoch) == (Node(2, "n2", 9092, None), 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_incident_an_answer_that_names_a_partition_twice_passed_for_one(version):
    data = answer(version, {"t": [partition(version, 0), partition(version, 0)]})
    with pytest.raises(NetworkError, match="one partition twice"):
        read_response(version, data)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_answer_is_an_error_wherever_it_is_cut(version):
    data = answer(version, {"t": [partition(version, 0), partition(version, 1)]})
    for end in range(len(data)):
        with pytest.raises(NetworkError):
            read_response(version, data[:end])
