from __future__ import annotations

import math
from datetime import timedelta
from random import Random
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node, TopicPartition
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network.messages import schema
from spark_kafka_sink.network.metadata import Metadata, MetadataUpdater
from spark_kafka_sink.network.metadata_api import parse_metadata


def response(version, brokers=((1, "b1", 9092),), topics=(), error=ErrorCode.none):
    module = schema("metadata", version).response
    ids = {"topic_id": None} if version >= 10 else {}
    named = [
        module.MetadataResponseTopic(
            error_code=code,
            name=name,
            partitions=tuple(
                module.MetadataResponsePartition(error_code=ErrorCode.none, partition_index=index, leader_id=leader)
                for index, leader in partitions
            ),
            **ids,
        )
        for name, code, partitions in topics
    ]
    return module.MetadataResponse(
        throttle_time=timedelta(0),
        brokers=tuple(module.MetadataResponseBroker(node_id=i, host=host, port=port) for i, host, port in brokers),
        topics=tuple(named),
        cluster_id="c",
        controller_id=1,
        **({"error_code": error} if version >= 13 else {}),
    )


@pytest.fixture
def cluster(turns):
    metadata = Metadata(ProducerConfig.parse({"bootstrap.servers": "boot:9092"}), Random(5))
    updater = MetadataUpdater(metadata)

    def step(ms: float = 0) -> float:
        turns.turn(ms)
        due = updater.maybe_update(turns.client, turns.now)
        turns.turn()
        return due

    def want(topic: str) -> None:
        with pytest.raises(KafkaTimeoutError):
            metadata.wait_for_topic(topic, None, 0, turns.clock, lambda: None)

    return SimpleNamespace(turns=turns, transport=turns.transport, metadata=metadata, step=step, want=want)


@pytest.mark.parametrize("version", [9, 10, 11, 12, 13])
def test_every_version_brings_brokers_and_leaders(cluster, version):
    cluster.turns.ranges = {3: (0, version)}
    cluster.want("t")
    assert cluster.step() == math.inf
    cluster.step()
    (sent,) = cluster.transport.requests
    assert (sent.api, sent.version) == ("metadata", version)
    assert [topic.name for topic in sent.entity().topics] == ["t"]
    assert sent.entity().allow_auto_topic_creation
    brokers = ((1, "b1", 9092), (2, "b2", 9093))
    cluster.transport.respond(sent, response(version, brokers, [("t", ErrorCode.none, [(1, -1), (0, 2)])]))
    cluster.step()
    snapshot = cluster.metadata.snapshot
    assert snapshot.nodes == {1: Node(1, "b1", 9092), 2: Node(2, "b2", 9093)}
    assert snapshot.topics["t"].leaders == (2, -1)
    assert snapshot.leader(TopicPartition("t", 0)) == 2
    assert (snapshot.cluster_id, snapshot.controller_id) == ("c", 1)
    assert cluster.step() == 300_000


def test_a_lost_connection_is_asked_about_and_bootstrap_is_tried_again(cluster):
    cluster.transport.accept_all = False
    cluster.step()
    cluster.transport.drop(1, "Connection refused")
    due = cluster.step()
    assert 40 <= due <= 60
    cluster.step(due - cluster.turns.now)
    assert cluster.transport.last_connection() == 2
    with pytest.raises(KafkaTimeoutError, match=r"No broker could be reached .*could not be established: Connection r"):
        cluster.metadata.wait_for_topic("t", None, 0, cluster.turns.clock, lambda: None)


@pytest.mark.parametrize(
    "answer",
    [
        response(13, brokers=()),
        response(13, error=ErrorCode.unknown_server_error),
    ],
)
def test_an_answer_that_makes_no_sense_counts_as_none(cluster, answer):
    cluster.step()
    cluster.step()
    cluster.transport.respond(cluster.transport.requests.popleft(), answer)
    due = cluster.step()
    assert cluster.metadata.snapshot.generation == 0
    assert 80 <= due <= 120


def test_a_broker_may_send_the_client_back_to_bootstrap(cluster):
    cluster.step()
    cluster.step()
    cluster.transport.respond(cluster.transport.requests.popleft(), response(13))
    cluster.step()
    cluster.metadata.request_update()
    cluster.step(200)
    cluster.step()
    refusal = response(13, error=ErrorCode.rebootstrap_required)
    cluster.transport.respond(cluster.transport.requests.popleft(), refusal)
    cluster.step()
    assert cluster.metadata.candidates(cluster.turns.now) == cluster.metadata.bootstrap_nodes


@pytest.mark.parametrize("partitions", [[(0, 1), (0, 1)], [(0, 1), (2, 1)], [(2**31 - 1, 1)]])
def test_a_topic_whose_partitions_do_not_add_up_is_left_out(partitions):
    snapshot = parse_metadata(response(12, topics=[("t", ErrorCode.none, partitions)]))
    assert snapshot.topics == {}
    assert snapshot.inconsistent == {"t": "The metadata of topic t does not name each of its partitions once."}
