"""Each fault does what it says, to the requests it is meant for, as often as it is told; and the log of requests.

Producer quotas: how long a client over its byte rate is throttled, and what its connection does in that time.
"""

import pytest

from spark_kafka_sink.testing import KEPT, TestBroker
from tests.contract.plain_client import PlainClient, batch
from tests.support.waiting import eventually, lasts

RECORDS = batch([b"x"])


def error(client, topic="t"):
    return str(client.produce(topic, RECORDS).error_code.name)


def test_answer_instead_of_the_append_once(broker, client):
    fault = broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER")
    broker.faults.answer("Produce", 56)

    assert [error(client) for _ in range(3)] == ["not_leader_or_follower", "kafka_storage_error", "none"]
    assert (fault.hits, len(broker.topic("t").records())) == (1, 1)


def test_a_kept_fault_stays_until_it_is_removed(broker, client):
    fault = broker.faults.answer("Produce", "NOT_ENOUGH_REPLICAS", times=KEPT)
    assert {error(client) for _ in range(3)} == {"not_enough_replicas"}

    fault.remove()

    assert (error(client), fault.hits) == ("none", 3)


def test_answer_for_one_partition_leaves_the_others_alone(broker, client):
    broker.create_topic("two", partitions=2)
    broker.faults.answer("Produce", "NOT_LEADER_OR_FOLLOWER", topic="two", partition=1)
    data = [{"name": "two", "partition_data": [{"index": index, "records": RECORDS} for index in (0, 1)]}]

    answer = client.ask("Produce", 9, acks=1, timeout=1000, topic_data=data)

    errors = {part.index: part.error_code.name for part in answer.responses[0].partition_responses}
    assert errors == {0: "none", 1: "not_leader_or_follower"}
    assert error(client) == "none"


def test_what_came_behind_a_dropped_request_is_lost_with_its_connection(broker, client):
    """It was handled all the same, so that a later batch of a producer overtook an earlier one."""
    broker.faults.delay("Produce", 50)
    broker.faults.drop_before("Produce")

    for _ in range(2):
        client.tell_produce("t", RECORDS)

    with pytest.raises(ConnectionError):
        client.hear("Produce", 9)
    with PlainClient(broker.bootstrap_servers) as later:
        assert error(later) == "none"
    assert len(broker.topic("t").records()) == 1


@pytest.mark.parametrize(("drop", "left"), [("drop_before", []), ("drop_after", [b"x"])])
def test_a_dropped_request_leaves_nothing_in_the_log_and_a_dropped_answer_the_records(broker, client, drop, left):
    getattr(broker.faults, drop)("Produce")

    with pytest.raises(ConnectionError):
        error(client)
    assert broker.topic("t").values() == left


def test_a_lost_answer_leaves_the_connection_open(broker, client):
    broker.faults.lose_answer("Produce")
    client.tell_produce("t", RECORDS)

    assert client.ask("Metadata", 9, topics=[]).brokers
    assert broker.topic("t").values() == [b"x"]


def test_a_delayed_handler_does_nothing_before_its_time(broker, client):
    fault = broker.faults.delay("Produce", 3_600_000)
    client.tell_produce("t", RECORDS)
    fault.wait()

    assert not client.hears_within(0.1)
    assert broker.topic("t").records() == []


def test_a_delayed_answer_comes_after_the_append(broker, client):
    fault = broker.faults.delay_answer("Produce", 60)
    with lasts(0.06):
        client.tell_produce("t", RECORDS)
        fault.wait()
        assert broker.topic("t").values() == [b"x"]

        client.hear("Produce", 9)


def test_busy_handlers_let_requests_wait():
    with TestBroker(config={"num.io.threads": 2}) as broker:
        slow = broker.faults.delay("Metadata", 80, times=2)
        clients = [PlainClient(broker.bootstrap_servers) for _ in range(3)]
        with lasts(0.08):
            for number, each in enumerate(clients[:2], start=1):
                each.tell("Metadata", 9, topics=[])
                broker.requests.wait_for("Metadata", number)
            clients[2].tell("Metadata", 9, topics=[])
            assert clients[2].hear("Metadata", 9).brokers  # it met no fault, but no free handler either
        for each in clients:
            each.close()
    assert slow.hits == 2


def test_cut_sends_the_start_of_a_frame(broker, client):
    broker.faults.cut("Metadata", 10)
    client.tell("Metadata", 9, topics=[])

    assert len(client.receive(10)) == 10
    assert client.is_hung_up()


def test_reorder_sends_the_next_answer_first(broker, client):
    broker.faults.reorder("Metadata")
    first, second = client.tell("Metadata", 9, topics=[]), client.tell("Metadata", 9, topics=[])

    heard = []
    for _ in range(2):
        client.hear("Metadata", 9)
        heard.append(client.last_correlation_id)

    assert heard == [second, first]


def test_a_fault_at_one_node_leaves_the_other_alone():
    with TestBroker(nodes=2) as broker:
        broker.faults.drop_before("Metadata", node=2)
        one, two = broker.bootstrap_servers.split(",")
        with PlainClient(one) as client:
            assert client.ask("Metadata", 9, topics=[]).brokers
        with PlainClient(two) as client, pytest.raises(ConnectionError):
            client.ask("Metadata", 9, topics=[])


def test_what_cannot_be_scripted_is_named_at_once(broker):
    with pytest.raises(ValueError, match="'Product' is not an API"):
        broker.faults.drop_after("Product")
    with pytest.raises(ValueError, match="'NO_SUCH' is not the name"):
        broker.faults.answer("Produce", "NO_SUCH")


def test_requests_are_logged_with_version_node_connection_and_client(broker, client):
    client.ask("Metadata", 9, topics=[])
    with PlainClient(broker.bootstrap_servers) as other:
        other.ask("Metadata", 12, topics=[])

    first, second = broker.requests

    assert (first.api, first.version, first.node, first.client_id) == ("Metadata", 9, 1, "plain")
    assert second.version == 12
    assert first.connection != second.connection


def test_waiting_for_requests_that_do_not_come_gives_up(broker, client):
    client.ask("Metadata", 9, topics=[])
    with pytest.raises(TimeoutError, match="1 of 2 Metadata"):
        broker.requests.wait_for("Metadata", 2, timeout_s=0.01)
    with pytest.raises(TimeoutError, match="no Produce request"):
        broker.faults.drop_after("Produce").wait(0.01)


LARGE = batch([b"x" * 50] * 60)


def produce_ms(client, topic="t", acks=-1):
    """``throttle_time_ms`` of one Produce request of some 3,530 bytes."""
    client.tell_produce(topic, LARGE, acks=acks)
    answer = client.hear("Produce", 9)
    return float(answer.throttle_time.total_seconds() * 1000)


def test_each_node_counts_for_itself():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", replication=1)
        broker.create_topic("u", replication=1)
        broker.move_leader("u", 0, to=2)
        broker.set_quotas("plain", {"producer_byte_rate": 370.0})
        for address, topic in zip(broker.bootstrap_servers.split(","), "tu", strict=True):
            with PlainClient(address) as client:
                assert produce_ms(client, topic, acks=1) == 0


def test_with_acks_0_the_connection_is_read_later_too(broker, client):
    broker.set_quotas("plain", {"producer_byte_rate": 335.0})
    with lasts(0.1):
        client.tell_produce("t", LARGE, acks=0)
        client.ask("Metadata", 9, topics=[])

    assert broker.topic("t").records()


def test_a_quota_that_is_removed_throttles_no_longer(broker, client):
    broker.set_quotas("plain", {"producer_byte_rate": 335.0})
    assert produce_ms(client) > 0
    broker.set_quotas("plain", {})

    assert produce_ms(client) == 0


@pytest.mark.parametrize(
    ("quotas", "says"), [({"consumer_byte_rate": 1.0}, "consumer_byte_rate"), ({"producer_byte_rate": 0.0}, "above 0")]
)
def test_what_is_no_quota_of_the_broker_is_refused(broker, quotas, says):
    with pytest.raises(ValueError, match=says):
        broker.set_quotas("plain", quotas)


def idle(broker):
    return broker.metrics()["KafkaRequestHandlerPool"]["RequestHandlerAvgIdlePercent"]


def test_a_broker_without_requests_is_idle_and_a_slow_handler_is_not():
    with TestBroker(config={"num.io.threads": 1}) as broker, PlainClient(broker.bootstrap_servers) as client:
        eventually(lambda: idle(broker) > 0.9)
        broker.faults.delay("Metadata", 100, times=KEPT)
        eventually(lambda: bool(client.ask("Metadata", 9, topics=[]).brokers) and idle(broker) < 0.5)
