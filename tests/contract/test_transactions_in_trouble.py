"""``KafkaProducer``'s transactional calls when the broker is slow, silent or has had enough; and when misused."""

import threading
from dataclasses import replace

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import (
    BrokerError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerClosedError,
    TransactionAbortedError,
)
from spark_kafka_sink.producer.transaction_requests import END_TXN_V1, PreparedTransaction
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.faults import KEPT
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import fence
from tests.support.waiting import DEADLINE_S

TOPIC = "t"
broker = broker_with(TOPIC, like=["3.5", "3.9", "4.1"])


@pytest.fixture
def producer(broker):
    """With a transaction open."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx", "request.timeout.ms": 2_000}
    with KafkaProducer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        yield producer


def send(producer, value):
    producer.send(ProducerRecord(TOPIC, value))


@pytest.mark.parametrize("code", ["NOT_CONTROLLER", "NOT_ENOUGH_REPLICAS", "KAFKA_STORAGE_ERROR"])
def test_incident_an_init_that_java_retries_ended_the_producer(broker, code):
    refused = broker.faults.answer("InitProducerId", code, times=KEPT)
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx"}
    with KafkaProducer(config) as producer:
        text = rf"init_transactions\(\) has no response after 2000 ms.*\. .*InitProducerId .*{code}"
        with pytest.raises(KafkaTimeoutError, match=text):
            producer.init_transactions(2_000)
        refused.remove()
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, b"a")
        producer.commit_transaction()
    assert broker.topic(TOPIC).values() == [b"a"]


def test_a_begin_whose_time_is_up_is_called_again(broker):
    """It waits for a new epoch, because the identity is one of protocol v1."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx", "max.block.ms": 3_000}
    identity = fence(config, "tx", DEADLINE_S * 1_000)
    with KafkaProducer(config) as producer:
        producer.resume_transactions(replace(identity, end_txn_version=END_TXN_V1))
        refused = broker.faults.answer("InitProducerId", "CONCURRENT_TRANSACTIONS", times=KEPT)
        with pytest.raises(KafkaTimeoutError, match=r"begin_transaction\(\) has no response .*call it again"):
            producer.begin_transaction()
        refused.remove()
        producer.begin_transaction()
        send(producer, b"a")
        producer.commit_transaction(DEADLINE_S * 1_000)
    assert broker.topic(TOPIC).values() == [b"a"]


def test_an_identity_is_resumed_on_brokers_that_cannot_renew_it():
    with TestBroker(like="2.4") as broker:
        broker.create_topic(TOPIC)
        config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx"}
        with KafkaProducer(config) as producer:
            producer.resume_transactions(fence(config, "tx", DEADLINE_S * 1_000))
            for value in (b"a", b"b"):
                producer.begin_transaction()
                send(producer, value)
                producer.commit_transaction()
        assert broker.topic(TOPIC).values() == [b"a", b"b"]


def test_a_commit_whose_time_is_up_is_called_again_and_was_one_commit(broker, producer):
    send(producer, b"a")
    slow = broker.faults.delay("EndTxn", 300)
    with pytest.raises(KafkaTimeoutError, match=r"commit_transaction\(\) has no response after 100 ms; call it again"):
        producer.commit_transaction(100)
    with pytest.raises(IllegalStateError, match=r"commit_transaction\(\) is not complete yet"):
        producer.abort_transaction()
    producer.commit_transaction()
    assert slow.hits == 1
    assert broker.topic(TOPIC).values() == [b"a"]
    producer.begin_transaction()
    producer.commit_transaction()


def test_a_preparation_whose_time_is_up_may_be_aborted(broker, producer):
    producer.flush()
    slow = broker.faults.delay("Produce", 250)
    send(producer, b"a")
    with pytest.raises(KafkaTimeoutError, match=r"prepare_transaction\(\) has no response"):
        producer.prepare_transaction(50)
    producer.abort_transaction()
    assert slow.hits == 1
    assert broker.topic(TOPIC).values() == []
    producer.begin_transaction()


@pytest.mark.parametrize("api", ["EndTxn", "Produce"])
def test_an_answer_lost_after_the_deed_costs_nothing(broker, producer, api):
    broker.faults.drop_after(api)
    send(producer, b"a")
    producer.commit_transaction()
    assert broker.topic(TOPIC).values() == [b"a"]


def test_the_next_transaction_waits_for_the_markers_of_the_one_before(broker, producer):
    send(producer, b"a")
    producer.flush()
    broker.hold_markers()
    release = threading.Timer(0.2, broker.release_markers)
    release.start()
    producer.commit_transaction()
    producer.begin_transaction()
    send(producer, b"b")
    producer.commit_transaction()
    release.join()
    assert broker.topic(TOPIC).values() == [b"a", b"b"]


def test_a_transaction_that_outlived_its_timeout_is_not_committed(broker, producer):
    send(producer, b"a")
    producer.flush()
    broker.expire_transaction("tx")
    with pytest.raises(BrokerError, match=r"(PRODUCER_FENCED|INVALID_TXN_STATE);.*exceeded transaction\.timeout\.ms"):
        producer.commit_transaction()
    assert broker.topic(TOPIC).values() == []


def test_records_dropped_by_an_abort_fail_their_futures(broker):
    """The record lingers until the abort, because one that the broker has acknowledged has a result."""
    lingering = {"linger.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx", **lingering}
    with KafkaProducer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send(ProducerRecord(TOPIC, b"a"))
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            future.result(DEADLINE_S)
        available = producer.metrics()["producer-metrics"]["buffer-available-bytes"]
        assert available == producer.config.buffer_memory
    assert broker.topic(TOPIC).values() == []


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
def test_the_callbacks_of_a_transaction_have_run_when_its_end_is_told(producer, end):
    told: list[object] = []
    for _ in range(100):
        producer.send(ProducerRecord(TOPIC, b"a"), lambda metadata, error: told.append(error))
    getattr(producer, end)()
    assert len(told) == 100


def test_records_need_an_open_transaction(producer):
    producer.commit_transaction()
    for send_something in (
        lambda: producer.send(ProducerRecord(TOPIC, b"a")),
        lambda: producer.send_columns(TOPIC, value=[b"a"]),
    ):
        with pytest.raises(IllegalStateError, match=r"call begin_transaction\(\) first"):
            send_something()


def test_closing_aborts_what_is_open_and_keeps_what_is_prepared(broker):
    config = {"bootstrap.servers": broker.bootstrap_servers}
    for prepare, state in ((False, "CompleteAbort"), (True, "Ongoing")):
        with KafkaProducer({**config, "transactional.id": state}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            send(producer, b"a")
            producer.flush()
            if prepare:
                assert isinstance(producer.prepare_transaction(), PreparedTransaction)
        assert broker.transaction_state(state) == state
        with pytest.raises(ProducerClosedError):
            producer.begin_transaction()


def test_closing_ends_though_nobody_is_left_to_abort_the_transaction(broker):
    times = {"request.timeout.ms": 1_000, "linger.ms": 0, "delivery.timeout.ms": 3_000}
    producer = KafkaProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "alone", **times})
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, b"a")
    producer.flush()
    broker.kill(1)
    producer.close()
    broker.start(1)
    assert broker.transaction_state("alone") == "Ongoing"


def test_a_callback_may_not_wait_for_the_transaction_it_belongs_to(producer):
    errors: list[Exception] = []

    def commit(metadata, error):
        try:
            producer.commit_transaction()
        except Exception as refused:
            errors.append(refused)

    producer.send(ProducerRecord(TOPIC, b"a"), commit)
    producer.flush()
    assert [type(error) for error in errors] == [IllegalStateError]


def test_without_a_transactional_id_there_are_no_transactions(broker):
    with (
        KafkaProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer,
        pytest.raises(IllegalStateError, match=r"transactional\.id"),
    ):
        producer.init_transactions()
