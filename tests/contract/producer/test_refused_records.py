"""Brokers that refuse some records of a batch and name them (KIP-467)."""

import time

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import BrokerError, FailedToSendError, KafkaError
from spark_kafka_sink.kafka08.sync_producer import SyncProducer
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.validation import RecordRules

HOUR_MS = 3_600_000


@pytest.fixture(params=["2.1", "2.4", "4.1"])
def broker(request):
    with TestBroker(like=request.param) as broker:
        broker.create_topic("t", configs={"message.timestamp.after.max.ms": HOUR_MS, "cleanup.policy": "compact"})
        broker.names_records = request.param != "2.1"
        yield broker


def config(broker, **more):
    return {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 500, **more}


def records(*late, count=6):
    """Those with these numbers are two hours ahead."""
    now = time.time_ns() // 1_000_000
    return [
        ProducerRecord("t", b"%d" % row, key=b"k", timestamp=now + 2 * HOUR_MS * (row in late)) for row in range(count)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_incident_one_refused_record_hid_in_its_batch(broker, codec):
    sent, order = records(2), []
    with KafkaProducer(config(broker, **{"compression.type": codec})) as producer:
        futures = [producer.send(record) for record in sent]
        for number, future in enumerate(futures):
            future.add_callback(lambda _, error, number=number: order.append(number))
        producer.flush()
        errors = [str(future.exception()) for future in futures]
    assert order == [*range(6)], "callbacks run in the order of the records"
    assert broker.topic("t").values() == []
    if not broker.names_records:
        assert {error.partition(";")[0] for error in errors} == {"t-0: INVALID_TIMESTAMP"}
        return
    own = errors.pop(2)
    named = f"INVALID_TIMESTAMP; Timestamp {sent[2].timestamp} of message with offset 2 is out of range"
    assert own.startswith(f"t-0, record 2 of its batch: {named}. The timestamp should be within [")
    assert set(errors) == {f"Not written, because the broker refused another record of the same batch. {own}"}
    assert type(futures[2].exception()) is BrokerError
    assert type(futures[0].exception()) is KafkaError


def test_several_refused_records_each_have_their_own_error_and_their_row_in_the_columns(broker):
    sent = records(1, 4)
    columns = {"key": [b"k", b"k", b"k", None, b"k", b"k"], "value": [record.value for record in sent]}
    with KafkaProducer(config(broker)) as producer:
        receipt = producer.send_columns("t", **columns, timestamp=[record.timestamp for record in sent])
        with pytest.raises(KafkaError) as caught:
            receipt.wait()
    if broker.names_records:
        assert caught.value.row == 1
        assert "t-0, record 1 of its batch, row 1: INVALID_RECORD; Timestamp" in str(caught.value)
    with SyncProducer(config(broker)) as producer, pytest.raises(FailedToSendError) as failed:
        producer.send(*sent)
    texts = {row: str(error) for row, error in failed.value.errors.items()}
    assert len(set(texts.values())) == (3 if broker.names_records else 1)
    assert not broker.names_records or f"Timestamp {sent[4].timestamp} of" in texts[4]


def test_incident_a_record_error_of_a_hostile_broker_names_no_record_of_the_batch(broker, monkeypatch):
    def refuse(rules, records):
        raise ApiError(ErrorCode.invalid_record, "so", [(-1, "a"), (6, "b"), (2**31 - 1, "c")])

    monkeypatch.setattr(RecordRules, "check", refuse)
    with KafkaProducer(config(broker)) as producer:
        futures = [producer.send(record) for record in records()]
        assert {str(future.exception()).partition("; ")[0] for future in futures} == {"t-0: INVALID_RECORD"}
