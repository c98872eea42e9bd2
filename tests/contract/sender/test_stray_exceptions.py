"""A bug, or memory that is short: an exception nobody expects costs what it concerned, and the sender goes on."""

import threading
from contextlib import suppress

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, ProducerClosedError
from spark_kafka_sink.producer import sender as loop
from tests.contract.brokers import broker_with
from tests.support.waiting import DEADLINE_S
from tests.unit.scripted_engine import Engine


@pytest.fixture
def engine():
    engine = Engine(partitions=2)
    engine.connect()
    return engine


def raises_once(monkeypatch, target, name, error=ArithmeticError):
    """The next call of the method raises, before it does anything."""
    method, raised = getattr(target, name), []

    def call(*arguments, **keywords):
        if not raised:
            raised.append(error("a bug"))
            raise raised[0]
        return method(*arguments, **keywords)

    monkeypatch.setattr(target, name, call)


def send(engine, partition=0, value=b"v"):
    return engine.parts.records.put(ProducerRecord("t", value, partition=partition), None, value)


def is_as_new(engine):
    """Nothing is left behind, and records go on in order."""
    assert engine.memory_is_free()
    assert not engine.parts.accumulator.has_incomplete
    before = [len(engine.values(partition)) for partition in (0, 1)]
    futures = [send(engine, number % 2, b"%d" % number) for number in range(20)]
    engine.settle()
    offsets = [future.result(0).offset for future in futures]
    assert offsets == [before[number % 2] + number // 2 for number in range(20)]


@pytest.mark.parametrize("method", ["seal", "succeed", "settle"])
def test_only_the_records_it_concerned_fail(engine, monkeypatch, caplog, method):
    parts = engine.parts.sender
    match method:
        case "seal":
            raises_once(monkeypatch, parts.accumulator, "seal", MemoryError)
        case "succeed":
            raises_once(monkeypatch, parts.sequences, "complete")
        case "settle":
            raises_once(monkeypatch, engine.parts.sender.response_handler, "_resolve")
    waiting = send(engine)
    engine.settle()
    if method != "settle":  # then they are in the log already, and known to be
        with pytest.raises(KafkaError, match=r"Error\('a bug'\)"):
            waiting.result(0)
    assert waiting.done()
    assert "Traceback" in caplog.text
    is_as_new(engine)


def test_metadata_that_cannot_be_taken_in_is_asked_for_again(monkeypatch):
    engine = Engine(partitions=2)
    raises_once(monkeypatch, engine.parts.sender.metadata, "updated")
    with suppress(KafkaTimeoutError):
        engine.parts.metadata.wait_for_topics({"t": None}, 0)
    for _ in range(10):
        engine.spin(200)
    assert "t" in engine.parts.metadata.snapshot.topics
    is_as_new(engine)


def test_a_producer_id_that_cannot_be_taken_in_is_asked_for_again(engine, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.producer.sender.ProducerIdentity", lambda *_: monkeypatch.undo() or 1 / 0)
    future = send(engine)
    engine.settle()
    assert future.result(0).offset == 0
    is_as_new(engine)


def test_bytes_that_cannot_be_taken_in_end_their_connection_only(engine, monkeypatch):
    send(engine)
    engine.settle()
    raises_once(monkeypatch, engine.parts.sender.client, "_received", IndexError)
    future = send(engine)
    engine.settle()
    assert future.result(0).offset == 1
    is_as_new(engine)


broker = broker_with("t")


@pytest.fixture
def config(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0}


@pytest.mark.parametrize("method", ["sendable", "remove_in_flight", "fail"])
def test_a_batch_that_a_stray_exception_leaves_nowhere_fails_by_its_delivery_timeout(
    broker, config, monkeypatch, method
):
    short = {"delivery.timeout.ms": 1_500, "request.timeout.ms": 1_000}
    transaction = {"transactional.id": "tx"} if method == "sendable" else {}
    producer = KafkaProducer({**config, **short, **transaction})
    parts = producer._core.sender
    if transaction:
        producer.init_transactions()
        producer.begin_transaction()
    producer.partitions_for("t")
    match method:
        case "sendable":
            raises_once(monkeypatch, parts.transactions, "sendable")
        case "remove_in_flight":
            raises_once(monkeypatch, parts.sequences, "remove_in_flight")
        case "fail":
            raises_once(monkeypatch, producer._core.sender.response_handler, "fail")
            broker.faults.lose_answer("Produce", times=1_000)
    future = producer.send(ProducerRecord("t", b"v"))
    producer.flush(DEADLINE_S * 1_000)
    assert isinstance(future.exception(0), KafkaError)
    assert producer._core.is_alive()
    producer.close(DEADLINE_S * 1_000)
    assert not producer._core.is_alive()
    assert not producer._core.accumulator.has_incomplete


def fails_turns(monkeypatch, producer, count):
    """So many turns raise, whoever turns; afterwards an event is set."""
    sender, over = producer._core.sender, threading.Event()
    run_once = sender.run_once
    left = [count]

    def turn(now, events):
        wake_at = run_once(now, events)
        if left[0]:
            left[0] -= 1
            raise ArithmeticError("a bug")
        over.set()
        return wake_at

    monkeypatch.setattr(sender, "run_once", turn)
    producer._core.sender_thread.wakeup()
    return over


def test_a_stray_exception_in_a_turn_is_logged_with_its_trace_and_the_producer_goes_on(config, monkeypatch, caplog):
    with KafkaProducer(config) as producer:
        over = fails_turns(monkeypatch, producer, 1)
        futures = [producer.send(ProducerRecord("t", b"x" * 1_000)) for _ in range(5_000)]
        producer.flush(DEADLINE_S * 1_000)
        assert [future.result(DEADLINE_S).offset for future in futures] == list(range(5_000))
        assert over.is_set()
    assert "Uncaught error in the sender" in caplog.text
    assert "ArithmeticError: a bug" in caplog.text


def test_turns_that_only_fail_end_the_producer_and_say_so(config, monkeypatch, caplog):
    with KafkaProducer(config) as producer:
        producer.partitions_for("t")
        monkeypatch.setattr(producer._core.sender, "run_once", lambda *_: 1 / 0)
        future = producer.send(ProducerRecord("t", b"v"))
        with pytest.raises(
            ProducerClosedError, match=r"gave up after \d+ failed iterations .* ZeroDivisionError.* Open a new"
        ):
            future.result(DEADLINE_S)
        with pytest.raises(ProducerClosedError):
            producer.send(ProducerRecord("t", b"v"))
    assert "gave up" in caplog.text


@pytest.mark.parametrize("wait", ["future", "receipt", "flush"])
def test_incident_a_call_waited_for_ever_for_a_thread_that_ended_without_failing_its_records(
    config, monkeypatch, caplog, wait
):
    with KafkaProducer({**config, "linger.ms": 60_000}) as producer:
        future, receipt = producer.send(ProducerRecord("t", b"v")), producer.send_columns("t", value=[b"v"])
        monkeypatch.setattr(producer._core.accumulator, "abort", lambda _: 1 / 0)
        monkeypatch.setattr(producer._core.sender, "run_once", lambda *_: 1 / 0)
        waits = {"future": future.result, "receipt": receipt.wait, "flush": producer.flush}
        with pytest.raises(ProducerClosedError, match="gave up after .* Open a new producer"):
            waits[wait]()
    assert "while the sender thread of" in caplog.text


def test_turns_that_fail_but_get_records_delivered_do_not_end_the_producer(config, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.producer.sender_thread._PAUSE_MS", 1.0)
    with KafkaProducer(config) as producer:
        producer.partitions_for("t")
        fails_turns(monkeypatch, producer, 1_000_000)
        for _ in range(30):
            producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
        assert producer._core.is_alive()
        monkeypatch.undo()


@pytest.fixture
def transactional(config):
    with KafkaProducer({**config, "transactional.id": "tx"}) as producer:
        producer.init_transactions()
        yield producer


def test_a_transaction_that_lost_records_to_a_stray_exception_cannot_be_committed(broker, transactional, monkeypatch):
    transactional.begin_transaction()
    raises_once(monkeypatch, transactional._core.sender.sequences, "complete")
    transactional.send(ProducerRecord("t", b"lost"))
    with pytest.raises(KafkaError, match="abort it"):
        transactional.commit_transaction()
    transactional.abort_transaction()
    transactional.begin_transaction()
    transactional.send(ProducerRecord("t", b"next"))
    transactional.commit_transaction()
    assert broker.topic("t").values() == [b"next"]


calls = {
    "_end_txn_completed": KafkaProducer.commit_transaction,
    "_initialized": lambda producer: producer.init_transactions(transactional_id="other"),
}


@pytest.mark.parametrize("method", calls)
def test_a_transactional_call_whose_response_cannot_be_taken_in_fails_at_once(
    transactional, monkeypatch, method, caplog
):
    manager = transactional._core.transaction_manager
    raises_once(monkeypatch, manager, method)
    if method == "_end_txn_completed":
        transactional.begin_transaction()
        transactional.send(ProducerRecord("t", b"v"))
    with pytest.raises(KafkaError, match="a bug"):
        calls[method](transactional)
    assert transactional._core.sender_thread.is_alive()
    assert "Traceback" in caplog.text


def test_a_command_that_cannot_be_taken_fails_at_once(transactional, monkeypatch):
    raises_once(monkeypatch, transactional._core.transaction_manager, "_begin")
    with pytest.raises(KafkaError, match="a bug"):
        transactional.begin_transaction()
    transactional.begin_transaction()
    transactional.commit_transaction()


def test_incident_a_request_that_could_not_be_made_was_in_flight_for_ever_in_the_metrics(engine, monkeypatch):
    raises_once(monkeypatch, loop, "produce_request", MemoryError)
    futures = [send(engine, partition) for partition in (0, 1)]
    engine.settle()
    assert all(isinstance(future.exception(0), KafkaError) for future in futures)
    is_as_new(engine)
    metrics = engine.parts.accumulator.metrics.read(engine.clock.now())["producer-metrics"]
    assert metrics["requests-in-flight"] == 0
    assert metrics["record-send-total"] == 20, "only what was sent counts"
