"""A commit waits for the replicas of ``__consumer_offsets``; tests/contract has the same with a real Kafka 4.1."""

from spark_kafka_sink.testing import TestBroker
from tests.contract.brokers import broker_with
from tests.contract.plain_client import PlainClient

OFFSETS = "__consumer_offsets"
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "offsets.commit.timeout.ms": 20}
HOUR_MS = 3_600_000
broker = broker_with("t", nodes=2, like=["4.1", "3.9"], config=ONE_PARTITION)


def tell_commit(client, offset=7):
    partition = {"partition_index": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    topics = [{"name": "t", "partitions": [{**partition, "committed_offset": offset}]}]
    client.tell("OffsetCommit", 7, group_id="g", generation_id_or_member_epoch=-1, topics=topics)


def hear_commit(client):
    return str(client.hear("OffsetCommit", 7).topics[0].partitions[0].error_code.name)


def commit(client, offset=7):
    tell_commit(client, offset)
    return hear_commit(client)


def counts(broker):
    return broker.committed("g").get(("t", 0))


def test_a_commit_that_no_replica_has_in_time_counts_later_or_never(broker, client):
    """Before Kafka 4.0 the coordinator forgets it, and committers get the error of the append."""
    assert commit(client, 1) == "none"
    broker.hold_followers(OFFSETS, 0)
    is_old = broker._release.commit_acks == -1

    assert commit(client) == ("request_timed_out" if is_old else "coordinator_not_available")
    assert counts(broker) == 1
    broker.release_followers(OFFSETS, 0)
    assert counts(broker) == (1 if is_old else 7)


def test_committed_offsets_are_gone_with_their_topic(broker, client):
    assert (commit(client), counts(broker)) == ("none", 7)
    client.ask("DeleteTopics", 4, topic_names=[OFFSETS], timeout=1000)
    assert broker.committed("g") == {}


def test_a_coordinator_that_moves_while_it_waits_is_told():
    with TestBroker(nodes=2, config={**ONE_PARTITION, "offsets.commit.timeout.ms": HOUR_MS}) as broker:
        broker.create_topic("t")
        with PlainClient(broker.bootstrap_servers) as client:
            commit(client, 1)
            broker.hold_followers(OFFSETS, 0)
            tell_commit(client)
            broker.requests.wait_for("OffsetCommit", 2)
            broker.move_leader(OFFSETS, 0, to=2)
            assert hear_commit(client) == "not_coordinator"


def test_a_disk_that_fails_has_no_coordinator(broker, client):
    assert commit(client, 1) == "none"
    broker.fail_storage(OFFSETS, 0)
    assert commit(client) == "not_coordinator"
    broker.fail_storage(OFFSETS, 0, failed=False)
    assert (counts(broker), commit(client)) == (1, "none")
