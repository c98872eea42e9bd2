"""An exception while a request's bytes are made fails the one call that the request is for, and holds nothing back."""

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import RequestBuildError, TransactionAbortableError
from spark_kafka_sink.network import connection, messages
from spark_kafka_sink.producer import produce_api
from spark_kafka_sink.producer.transaction_manager import State, Step
from spark_kafka_sink.producer.transaction_requests import ConsumerGroupMetadata, OffsetAndMetadata
from spark_kafka_sink.testing.broker import TestBroker
from tests.unit.scripted_engine import Engine
from tests.unit.transactions.transactional_engine import TransactionalEngine, partition

DEADLINE_MS = 120_000.0
GROUP = ConsumerGroupMetadata("readers")
both_protocols = pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])


def fails_once(monkeypatch, api):
    """The encoder of the next request of this API raises."""
    left = [api]
    encode, body = messages.encode_request, produce_api._body

    def encode_request(request, *others):
        if left and type(request).__name__ == f"{api}Request":
            left.clear()
            raise ArithmeticError("a bug")
        return encode(request, *others)

    def produce_body(*arguments):
        if left and api == "Produce":
            left.clear()
            raise ArithmeticError("a bug")
        return body(*arguments)

    monkeypatch.setattr(messages, "encode_request", encode_request)
    monkeypatch.setattr(connection, "encode_request", encode_request)
    monkeypatch.setattr(produce_api, "_body", produce_body)
    return left


def send(engine, partition=0):
    return engine.parts.records.put(ProducerRecord("t", b"v", partition=partition), None, b"v")


def delivers(engine):
    """A record sent now is in the log, and no memory is held."""
    future = send(engine)
    engine.settle()
    assert future.result(0).offset == len(engine.values()) - 1
    assert engine.memory_is_free()
    assert not engine.parts.accumulator.has_incomplete


def test_incident_metadata_stayed_in_flight_for_ever_and_every_new_topic_timed_out(monkeypatch, caplog):
    engine = Engine()
    requested, respond = [], engine._metadata

    def metadata(request):
        requested.append([topic.name for topic in request.entity().topics])
        return respond(request)

    monkeypatch.setattr(engine, "_metadata", metadata)
    left = fails_once(monkeypatch, "Metadata")
    with pytest.raises(RequestBuildError, match=r"Metadata could not be built: ArithmeticError\('a bug'\)"):
        engine.wait_for_topic("poisoned", DEADLINE_MS, engine.spin)
    assert not left
    assert "Traceback" in caplog.text
    engine.spin(engine.config.retry_backoff_max_ms)
    engine.connect()
    assert requested
    assert not any("poisoned" in topics for topics in requested)
    delivers(engine)


@pytest.mark.parametrize("idempotent", [True, False])
def test_records_of_a_produce_request_that_could_not_be_built_fail_once_and_the_next_are_delivered(
    monkeypatch, idempotent
):
    engine = Engine(enable_idempotence=idempotent)
    engine.connect()
    delivers(engine)
    fails_once(monkeypatch, "Produce")
    future = send(engine)
    engine.settle()
    assert isinstance(future.exception(0), RequestBuildError)
    delivers(engine)


@both_protocols
@pytest.mark.parametrize("api", ["FindCoordinator", "InitProducerId"])
def test_an_init_that_could_not_be_built_may_be_called_again(monkeypatch, v2, api):
    engine = TransactionalEngine(v2)
    fails_once(monkeypatch, api)
    with pytest.raises(RequestBuildError, match=f"{api} could not be built"):
        engine.call(Step.INIT)
    assert engine.state is State.UNINITIALIZED
    engine.begun()
    engine.append([b"a"])
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"a"]


OFFSETS = {partition(0): OffsetAndMetadata(7)}


@pytest.mark.parametrize(
    ("api", "v2"),
    [("TxnOffsetCommit", False), ("TxnOffsetCommit", True), ("AddOffsetsToTxn", False), ("FindCoordinator", True)],
)
def test_incident_offsets_that_could_not_be_sent_blocked_every_abort_and_left_the_transaction_open(
    monkeypatch, api, v2
):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"a"])
    engine.spin()
    fails_once(monkeypatch, api)
    with pytest.raises(TransactionAbortableError, match=f"abort it: The request {api} could not be built"):
        engine.call(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    engine.call(Step.ABORT)
    assert engine.visible() == []
    engine.begin()
    engine.append([b"b"])
    engine.call(Step.SEND_OFFSETS, offsets=OFFSETS, group=GROUP)
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"b"]
    assert engine.offsets() == {("t", 0): 7}
    assert engine.memory_is_free()


@both_protocols
@pytest.mark.parametrize("step", [Step.COMMIT, Step.ABORT])
def test_a_transaction_whose_end_could_not_be_built_can_be_aborted(monkeypatch, v2, step):
    engine = TransactionalEngine(v2).begun()
    engine.append([b"a"])
    engine.spin()
    fails_once(monkeypatch, "EndTxn")
    with pytest.raises(TransactionAbortableError, match="EndTxn could not be built"):
        engine.call(step)
    assert engine.state is State.ABORTABLE_ERROR
    engine.call(Step.ABORT)
    assert engine.visible() == []
    engine.begin()
    engine.append([b"b"])
    engine.call(Step.COMMIT)
    assert engine.visible() == [b"b"]


@pytest.mark.parametrize("api", ["ApiVersions", "SaslHandshake", "SaslAuthenticate"])
def test_a_connection_whose_handshake_could_not_be_built_is_tried_again(monkeypatch, api):
    with TestBroker(listeners={"CLIENTS": "SASL_PLAINTEXT"}) as broker:
        left = fails_once(monkeypatch, api)
        with KafkaProducer(broker.client_options("CLIENTS")) as producer:
            producer.partitions_for("t")
        assert not left
