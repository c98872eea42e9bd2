"""Nodes that die, come back, hang, start and stop; leaders and coordinators that move; topics of the brokers' own."""

import asyncio
import itertools
import os
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from spark_kafka_sink.errors import BrokerError, ConfigError, IllegalStateError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.acceptor import LOOPBACK, Acceptor
from spark_kafka_sink.testing.broker.authentication import AtListener, AuthenticationLog
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS, coordinator_partition
from spark_kafka_sink.testing.listener import Listener
from tests.contract.plain_client import PlainClient, batch
from tests.support.waiting import DEADLINE_S

RECORDS = batch([b"x"])


def address(broker, node):
    return broker.bootstrap_servers.split(",")[node - 1]


def test_a_killed_node_is_gone_and_others_lead():
    with TestBroker(nodes=3) as broker:
        broker.create_topic("t", partitions=3)
        with PlainClient(address(broker, 1)) as client:
            broker.kill(1)
            assert client.is_hung_up()
        with pytest.raises(ConnectionRefusedError):
            PlainClient(address(broker, 1))
        with PlainClient(address(broker, 2)) as client:
            answer = client.ask("Metadata", 9, topics=[{"name": "t"}])
        assert [int(node.node_id) for node in answer.brokers] == [2, 3]
        leaders = {part.partition_index: int(part.leader_id) for part in answer.topics[0].partitions}
        assert leaders == {0: 2, 1: 2, 2: 3}


def test_a_node_comes_back_on_its_port_with_its_records_and_in_sync():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t")
        with PlainClient(address(broker, 1)) as client:
            client.produce("t", RECORDS)
        broker.kill(1)
        broker.start(1)
        with PlainClient(address(broker, 1)) as client:
            (partition,) = client.ask("Metadata", 9, topics=[{"name": "t"}]).topics[0].partitions
        assert (int(partition.leader_id), int(partition.leader_epoch)) == (2, 1)
        assert sorted(map(int, partition.isr_nodes)) == [1, 2]
        assert broker.topic("t").values() == [b"x"]


def test_the_last_replica_takes_the_leadership_with_it_and_brings_it_back():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", replication=1)
        broker.kill(1)
        with PlainClient(address(broker, 2)) as client:
            (partition,) = client.ask("Metadata", 9, topics=[{"name": "t"}]).topics[0].partitions
            assert (partition.error_code.name, int(partition.leader_id)) == ("leader_not_available", -1)
        broker.start(1)
        assert broker.leader("t", 0) == 1


def test_a_node_can_be_killed_and_started_only_in_turn():
    with TestBroker() as broker:
        with pytest.raises(IllegalStateError, match="node 1 is running"):
            broker.start(1)
        broker.kill(1)
        with pytest.raises(IllegalStateError, match="node 1 is not running"):
            broker.kill(1)


def test_a_paused_node_answers_when_it_is_resumed(broker, client):
    broker.pause(1)
    client.tell("Metadata", 9, topics=[])
    resume = threading.Timer(0.05, broker.resume, [1])
    resume.start()

    assert client.hear("Metadata", 9).brokers

    resume.join()
    assert len(broker.requests.of("Metadata")) == 1


def test_a_paused_node_sends_no_delayed_answer():
    with TestBroker(nodes=2) as broker, PlainClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        broker.hold_followers("t", 0)
        client.tell_produce("t", RECORDS)
        broker.requests.wait_for("Produce")
        broker.pause(1)
        broker.release_followers("t", 0)
        assert not client.hears_within(0.03)

        broker.resume(1)

        assert client.hears_within(5)


def test_cut_connections_leaves_the_node_listening(broker, client):
    client.ask("Metadata", 9, topics=[])

    broker.cut_connections(1)

    assert client.is_hung_up()
    with PlainClient(broker.bootstrap_servers) as again:
        assert again.ask("Metadata", 9, topics=[]).brokers


def test_a_storage_failure_that_halts_stops_its_leader_without_a_response():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t")
        broker.fail_storage("t", 0, halt=True)
        with PlainClient(address(broker, 1)) as client, PlainClient(address(broker, 1)) as other:
            assert client.ask("Metadata", 9, topics=[]).brokers
            with pytest.raises(ConnectionError):
                client.produce("t", RECORDS)
            assert other.is_hung_up()
        with pytest.raises(ConnectionRefusedError):
            PlainClient(address(broker, 1))
        assert (broker.leader("t", 0), broker.topic("t").records()) == (2, [])

        broker.start(1)
        broker.move_leader("t", 0, to=1)
        with PlainClient(address(broker, 1)) as client:
            assert client.produce("t", RECORDS).error_code.name == "none"


def test_what_the_cluster_refuses_is_a_broker_error(broker):
    with pytest.raises(BrokerError, match="already exists") as failure:
        broker.create_topic("t")
    assert (failure.value.code, failure.value.name) == (36, "TOPIC_ALREADY_EXISTS")


def test_what_is_not_there_is_named(broker):
    with pytest.raises(ValueError, match="no partition t-5"):
        broker.move_leader("t", 5)
    with pytest.raises(ValueError, match="no node 2"):
        broker.kill(2)
    with pytest.raises(ValueError, match="no node 7"):
        broker.move_leader("t", 0, to=7)
    with pytest.raises(ValueError, match="no topic nope"):
        broker.topic("nope").records()


def test_each_node_lists_and_describes_what_it_coordinates():
    with TestBroker(nodes=3) as broker:
        ids = {f"tx-{number}" for number in range(20)}
        listed: list[str] = []
        for node in broker.node_ids:
            with PlainClient(address(broker, node)) as client:
                for name in ids:  # NOT_COORDINATOR on all nodes but one
                    client.ask("InitProducerId", 4, transactional_id=name, transaction_timeout=1000)
                own = [each.transactional_id for each in client.ask("ListTransactions", 0).transaction_states]
                states = client.ask("DescribeTransactions", 0, transactional_ids=sorted(ids)).transaction_states
                assert {each.transactional_id for each in states if each.error_code.name == "none"} == set(own)
                assert {each.error_code.name for each in states} == {"none", "not_coordinator"}
                listed += own
        assert sorted(listed) == sorted(ids)


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_after_it_was_closed_with_requests_under_way():
    threads, files = threading.active_count(), open_files()
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t")
        broker.hold_followers("t", 0)
        broker.faults.delay("Metadata", 60_000)
        waiting, slow, idle = (PlainClient(broker.bootstrap_servers) for _ in range(3))
        waiting.tell_produce("t", batch([b"x"]), timeout=60_000)
        slow.tell("Metadata", 9, topics=[])
        broker.requests.wait_for("Produce")
        broker.requests.wait_for("Metadata")
    assert all(client.is_hung_up() for client in (waiting, slow, idle))
    for client in (waiting, slow, idle):
        client.close()
    assert (threading.active_count(), open_files()) == (threads, files)


def test_closing_twice_does_nothing():
    with TestBroker() as broker:
        broker.close()


def test_a_closed_broker_says_so():
    with TestBroker() as broker:
        pass
    with pytest.raises(IllegalStateError, match="closed"):
        broker.create_topic("t")


def test_a_broker_that_was_never_started_says_how():
    with pytest.raises(IllegalStateError, match="with TestBroker"):
        TestBroker().create_topic("t")


def test_bad_settings_are_named_all_at_once():
    with pytest.raises(ConfigError) as failure:
        TestBroker(config={"min.insync.replica": 2, "num.partitions": "many"})
    assert len(failure.value.faults) == 2
    assert "did you mean min.insync.replicas?" in str(failure.value)


def test_an_unknown_release_is_named():
    with pytest.raises(ConfigError, match=r"2\.8, 3\.5, 3\.9, 4\.1"):
        TestBroker(like="1.0")


def test_a_socket_that_sends_nothing_does_not_stop_others():
    with TestBroker() as broker:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        with socket.create_connection((host, int(port))), PlainClient(broker.bootstrap_servers) as client:
            assert client.ask("Metadata", 9, topics=[]).brokers


@pytest.mark.parametrize("steps", range(10))
def test_incident_a_connection_accepted_while_its_node_was_killed_stayed_open_and_silent(steps):
    async def first_byte_of_a_killed_node():
        no_requests: Any = None
        at = AtListener(1, "PLAINTEXT", Listener("PLAINTEXT"), AuthenticationLog())
        listener = Acceptor(at, 0, no_requests, itertools.count(), 1)
        listener.open()
        await asyncio.sleep(0.01)  # it waits for a connection
        with socket.create_connection((LOOPBACK, listener.port)) as client:
            for _ in range(steps):
                await asyncio.sleep(0)
            listener.close()
            client.setblocking(False)
            with suppress(ConnectionResetError):
                return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), DEADLINE_S)
            return b""

    assert asyncio.run(first_byte_of_a_killed_node()) == b""


OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_an_internal_topic_is_known_as_such_before_it_exists(client, topic):
    (answer,) = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False).topics
    assert (answer.error_code.name, answer.is_internal) == ("unknown_topic_or_partition", True)


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
def test_a_client_that_asks_for_it_makes_the_broker_create_it(client, topic):
    (answer,) = client.ask("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=True).topics
    assert (answer.error_code.name, answer.is_internal, len(answer.partitions)) == ("none", True, 50)


@pytest.mark.parametrize(("topic", "key_type"), [(OFFSETS, 0), (TRANSACTIONS, 1)])
def test_the_leader_of_its_partition_coordinates_a_group_or_a_transactional_id(topic, key_type):
    with TestBroker(nodes=3) as broker, PlainClient(broker.bootstrap_servers) as client:
        found = int(client.ask("FindCoordinator", 3, key="key", key_type=key_type).node_id)
        partition = coordinator_partition("key", 50)
        assert found == broker.leader(topic, partition)
        broker.move_leader(topic, partition, to=found % 3 + 1)
        assert int(client.ask("FindCoordinator", 3, key="key", key_type=key_type).node_id) == found % 3 + 1
        broker.move_leader(topic, partition)
        answer = client.ask("FindCoordinator", 3, key="key", key_type=key_type)
        assert answer.error_code.name == "coordinator_not_available"


@pytest.mark.parametrize(("topic", "prefix"), [(OFFSETS, "offsets.topic"), (TRANSACTIONS, "transaction.state.log")])
def test_the_number_of_partitions_is_a_setting(topic, prefix):
    with TestBroker(config={f"{prefix}.num.partitions": 2}) as broker, PlainClient(broker.bootstrap_servers) as client:
        (described,) = client.ask("Metadata", 9, topics=[{"name": topic}]).topics
    assert len(described.partitions) == 2
