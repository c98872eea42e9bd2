"""What a wait in vain says: each error ends with what stood in the way, and what cannot get better ends at once.

Over a quota, responses ask for a pause: the producer waits, and everything arrives once.
"""

import socket
from contextlib import contextmanager

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord, open_producer
from spark_kafka_sink.errors import BrokerError, BufferExhaustedError, KafkaTimeoutError, WrongProtocolError
from spark_kafka_sink.network.diagnosis import diagnosis
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.broker import KEPT
from tests.support.oauth_kafka import LISTENER, oauth_options
from tests.support.waiting import eventually, lasts

RECORD = ProducerRecord("t", b"value")
BRIEFLY = {"max.block.ms": 1_500, "delivery.timeout.ms": 900, "request.timeout.ms": 900, "linger.ms": 0}
UNRESOLVED = r"broker\.invalid:\d+ \(id: 1\) could not be established: the host name cannot be resolved"
THROTTLED = r"\(id: 1\) throttles this client for \d+ ms more"


@pytest.fixture
def broker():
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t", replication=1)  # led by node 1
        yield broker


@contextmanager
def producer(bootstrap_servers="", **options):
    named = {name.replace("_", "."): value for name, value in options.items()}
    opened = KafkaProducer({"bootstrap.servers": bootstrap_servers, **BRIEFLY, **named})
    try:
        yield opened
    finally:
        opened.close(0)


def advertise(broker, node, host):
    broker._call(lambda server: setattr(server.state.cluster.nodes[node], "host", host))


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (lambda broker: advertise(broker, 1, "broker.invalid"), UNRESOLVED),
        (lambda broker: broker.kill(1), "t-0 has no leader"),
        (lambda broker: broker.pause(1), r"\(id: 1\) (has not responded|did not respond) to \w+ v\d+"),
        (lambda broker: broker.faults.throttle("Produce", 3_600_000), THROTTLED),
    ],
    ids=["host name", "killed", "hung", "throttled"],
)
def test_an_expired_batch_was_told_without_a_reason(broker, trouble, reason):
    second = broker.bootstrap_servers.split(",")[1]
    fault = trouble(broker)
    one_by_one = {"batch_size": 1, "max_in_flight_requests_per_connection": 1}
    with producer(second, max_block_ms=60_000, **one_by_one) as opened:
        opened.send(RECORD)
        if fault is not None:
            fault.wait()
        with pytest.raises(KafkaTimeoutError, match=rf"^Expiring 1 record\(s\) for t-0: .*{reason}"):
            opened.send(RECORD).result()


def test_a_throttling_broker_was_no_reason(broker):
    first = broker.bootstrap_servers.split(",")[0]
    broker.kill(2)
    broker.faults.throttle("Produce", 3_600_000)
    with producer(first, buffer_memory=1_000, max_request_size=900, delivery_timeout_ms=60_000) as opened:
        opened.send(RECORD).result()
        with pytest.raises(KafkaTimeoutError, match=rf"^Topic u not present in metadata after 1500 ms\. .*{THROTTLED}"):
            opened.partitions_for("u")
        opened.send(ProducerRecord("t", bytes(600)))
        with pytest.raises(KafkaTimeoutError, match=rf"^Failed to flush within 500 ms\. .*{THROTTLED}"):
            opened.flush(500)
        with pytest.raises(BufferExhaustedError, match=THROTTLED):
            opened.send(ProducerRecord("t", bytes(600)))


def test_incident_while_all_brokers_were_dead_the_first_advice_was_more_memory(broker):
    memory = {"buffer_memory": 1_000, "max_request_size": 900, "delivery_timeout_ms": 60_000}
    with producer(broker.bootstrap_servers, **memory) as opened:
        opened.send(RECORD).result()
        broker.kill(1)
        broker.kill(2)
        opened.send(ProducerRecord("t", bytes(600)))
        with pytest.raises(BufferExhaustedError) as raised:
            opened.send(ProducerRecord("t", bytes(600)))
    text = str(raised.value)
    assert 0 < text.index("Connection refused") < text.index("If the brokers are only slow, raise buffer.memory")
    assert diagnosis(raised.value, "spark-kafka-sink check").startswith("The connection to 127.0.0.1:")


def test_incident_what_an_expired_record_and_a_flush_waited_for_had_no_step_and_no_command(broker):
    with producer(broker.bootstrap_servers) as opened:
        opened.send(RECORD).result()
        broker.kill(1)
        broker.kill(2)
        future = opened.send(RECORD)
        with pytest.raises(KafkaTimeoutError, match="^Failed to flush within 500 ms") as flush:
            opened.flush(500)
        with pytest.raises(KafkaTimeoutError, match=r"^Expiring 1 record\(s\)") as expired:
            future.result()
    for raised in (flush, expired):
        text = diagnosis(raised.value, "the command")
        assert "failed at step TCP; see " in text
        assert text.endswith(": the command")


def test_incident_a_port_that_keeps_quiet_had_no_step_and_no_command():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            producer(server, request_timeout_ms=60_000, delivery_timeout_ms=60_000) as opened,
            pytest.raises(KafkaTimeoutError, match=r"has not responded to ApiVersions .* listener\?$") as raised,
        ):
            opened.send(RECORD)
    assert diagnosis(raised.value, "x").startswith(f"The connection to {server} failed at step ApiVersions")


def test_a_partition_without_leader_says_what_that_means(broker):
    broker.kill(1)
    second = broker.bootstrap_servers.split(",")[1]
    reason = "t-0 has no leader: none of its in-sync replicas is alive$"
    with producer(second) as opened, pytest.raises(KafkaTimeoutError, match=reason):
        opened.send(ProducerRecord("t", b"value", partition=0)).result()


def test_a_login_that_waits_for_a_token_was_told_as_no_response():
    listeners = {LISTENER: Listener("SASL_PLAINTEXT")}
    with TestBroker(listeners=listeners) as broker, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        options = {**oauth_options(broker, url), "request.timeout.ms": 60_000, "delivery.timeout.ms": 60_000}
        reason = rf"The login at .* has waited \d+ ms for a token of sasl\.oauthbearer\.token\.endpoint\.url {url}"
        with producer(**options) as opened, pytest.raises(KafkaTimeoutError, match=reason):
            opened.send(RECORD)


def test_a_coordinator_that_cannot_be_reached_was_told_without_a_reason(broker):
    servers = broker.bootstrap_servers.split(",")
    broker.create_topic("__transaction_state", 50, replication=1)
    coordinator = broker._call(lambda server: server.state.cluster.coordinator("x").id)
    advertise(broker, coordinator, "broker.invalid")
    other, text = servers[2 - coordinator], rf"^init_transactions\(\) has no response .*{UNRESOLVED}"
    with producer(other, transactional_id="x") as opened, pytest.raises(KafkaTimeoutError, match=text):
        opened.init_transactions()


def test_a_topic_whose_metadata_is_inconsistent_failed_all(broker):
    broker.create_topic("bad", 2, replication=1)
    first, second = broker._call(lambda server: server.state.cluster.topics["bad"].partitions)
    broker._call(lambda server: setattr(second, "name", first.name))
    with producer(broker.bootstrap_servers) as opened:
        with pytest.raises(KafkaTimeoutError, match="metadata of topic bad does not name each partition exactly once"):
            opened.partitions_for("bad")
        opened.send(RECORD).result()


def test_tls_against_a_listener_without_tls_was_tried_until_max_block_ms(broker):
    text = r"responded without TLS: .* set security\.protocol=PLAINTEXT"
    ssl = {"security.protocol": "SSL", "max.block.ms": 3_600_000}
    with producer(broker.bootstrap_servers, **ssl) as opened, pytest.raises(WrongProtocolError, match=text) as raised:
        opened.send(RECORD)
    assert " failed at step TLS. " in diagnosis(raised.value, "the command")
    assert {(each.api, each.client_id) for each in broker.requests} == {("ApiVersions", "")}


@pytest.mark.parametrize("producer_type", ["async", "sync"])
def test_a_topic_made_anew_with_lower_epochs_took_no_record(producer_type):
    """On brokers with leader epochs and without topic ids, Kafka 2.4 to 2.7."""
    with TestBroker(nodes=2, like="2.4") as broker:
        broker.create_topic("t", replication=2)
        broker.move_leader("t", 0, 2)
        with open_producer({"bootstrap.servers": broker.bootstrap_servers}, producer_type) as opened:
            for _ in range(2):
                sent = opened.send(RECORD)
                assert isinstance(sent, list) or sent.result()
                broker.delete_topic("t")
                broker.create_topic("t", replication=1)  # led by node 1, with epoch 0


@pytest.mark.parametrize("name", [" ", "a b", ".", "..", "a" * 250, "žluť"])
def test_a_name_that_no_topic_has_was_asked_for(name):
    with producer("127.0.0.1:1") as opened, pytest.raises(BrokerError, match="^Invalid topics: "):
        opened.send(ProducerRecord(name, b"value"))


APIS = ["ApiVersions", "Metadata", "FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"]
THROTTLE_MS = 100


@pytest.mark.parametrize("api", APIS)
def test_a_response_that_throttles_is_waited_out(api):
    with TestBroker(like="3.9") as broker:
        broker.create_topic("t")
        broker.create_topic("other")
        fault = broker.faults.throttle(api, THROTTLE_MS, times=KEPT)
        config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x", "linger.ms": 0}
        with lasts(THROTTLE_MS / 1000), KafkaProducer(config) as producer:
            # Now all requests go to node 1: a FindCoordinator on the bootstrap connection would throttle only that one.
            producer.partitions_for("other")
            producer.init_transactions()
            for value in (b"1", b"2"):
                producer.begin_transaction()
                producer.send(ProducerRecord("t", value))
                producer.commit_transaction()
        assert broker.topic("t").values() == [b"1", b"2"]
        assert fault.hits


def test_find_coordinator_that_tells_nothing_is_not_asked_at_network_speed(kafka_test_broker):
    empty = b"\0\0\0\0\0\1\0"  # no tags, no throttle time, no coordinators, no tags
    fault = kafka_test_broker.faults.mangle(
        "FindCoordinator", lambda frame: (4 + len(empty)).to_bytes(4, "big") + frame[4:8] + empty, times=KEPT
    )
    config = {"bootstrap.servers": kafka_test_broker.bootstrap_servers, "transactional.id": "x", "max.block.ms": 500}
    with KafkaProducer(config) as producer:
        with pytest.raises(KafkaTimeoutError):
            producer.init_transactions()
        assert fault.hits < 10
        fault.remove()
        eventually(lambda: is_initialised(producer))


def is_initialised(producer):
    """Each call waits half a second."""
    try:
        producer.init_transactions()
    except KafkaTimeoutError:
        return False
    return True
