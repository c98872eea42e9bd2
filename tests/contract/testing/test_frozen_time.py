"""Tests of users that freeze the time, as freezegun does: ``time.time``, and also ``time.monotonic``."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.testing import TestBroker

MS = 2_051_222_400_000
HOUR_MS = 3_600_000
TIMEOUT_MS = 60_000


class FrozenTime:
    ms = MS


@pytest.fixture
def frozen(monkeypatch) -> FrozenTime:
    now = FrozenTime()
    for name, per_ms in {"time": 1e-3, "time_ns": 10**6, "monotonic": 1e-3, "perf_counter": 1e-3}.items():
        monkeypatch.setattr(time, name, lambda per_ms=per_ms: now.ms * per_ms)
    return now


def test_incident_while_the_time_was_frozen_no_wait_ended_and_test_broker_did_not_respond(frozen):
    with TestBroker() as broker:
        broker.create_topic("t")
        options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20}
        with KafkaProducer(options) as producer:
            assert producer.send(ProducerRecord("t", b"result")).result(TIMEOUT_MS / 1000).timestamp == MS
            producer.send_columns("t", value=[b"receipt"]).wait(TIMEOUT_MS)
            producer.send(ProducerRecord("t", b"before"))
            frozen.ms += HOUR_MS
            producer.send(ProducerRecord("t", b"after"))
            producer.flush(TIMEOUT_MS)
        options |= {"max.block.ms": 100, "allow.auto.create.topics": False}
        with KafkaProducer(options) as producer, pytest.raises(KafkaTimeoutError, match="after 100 ms"):
            producer.partitions_for("missing")
        assert {record.value: record.timestamp for record in broker.topic("t").records()} == {
            b"result": MS, b"receipt": MS, b"before": MS, b"after": MS + HOUR_MS,
        }  # fmt: skip
