"""What chaos does to brokers, without brokers."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.testing import LocalKafka, TestBroker
from spark_kafka_sink.testing.local_kafka import LocalKafkaError
from tests.addresses import addresses_of
from tests.faults.chaos import kafka
from tests.faults.chaos.kafka import Right


@pytest.fixture
def brokers(monkeypatch):
    """Their logs are read for longer than LocalKafka waits."""

    def start(*_):
        raise LocalKafkaError("Waited 60 s in vain until node 3 responds")

    monkeypatch.setattr(LocalKafka, "start", start)
    monkeypatch.setattr(LocalKafka, "node_ids", (1, 2, 3))
    monkeypatch.setattr(LocalKafka, "bootstrap_servers", "here:1,here:2,here:3")
    return kafka.ChaosKafka()


def test_a_broker_that_reads_its_logs_for_long_does_not_end_the_run(brokers, monkeypatch):
    answers = iter([OSError("refused"), {"metadata.version": 1}])
    asked = []

    def features(address):
        asked.append(address)
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(LocalKafka, "alive", lambda *_: True)
    monkeypatch.setattr(kafka.requests, "features", features)
    brokers.start(3)
    assert asked == [("here", 3)] * 2


def test_a_broker_that_ends_at_its_start_does(brokers, monkeypatch):
    monkeypatch.setattr(LocalKafka, "alive", lambda *_: False)
    with pytest.raises(LocalKafkaError):
        brokers.start(3)


@pytest.fixture(params=["4.1", "3.9"])
def served(request):
    with TestBroker(like=request.param) as broker:
        broker.create_topic("topic", partitions=1)
        yield broker


def test_transactional_ids_are_those_that_were_used(served, brokers, monkeypatch):
    monkeypatch.setattr(brokers, "_addresses", lambda: addresses_of(served.bootstrap_servers))
    assert brokers.transactional_ids("") == []
    for name in ("nightly-0", "nightly-driver", "once-0"):
        with KafkaProducer({"bootstrap.servers": served.bootstrap_servers, "transactional.id": name}) as producer:
            producer.init_transactions()
    assert brokers.transactional_ids("nightly-") == ["nightly-0", "nightly-driver"]
    assert Right(ResourceType.TRANSACTIONAL_ID, "once-*", AclOperation.WRITE).covers("once-0")
    assert not Right(ResourceType.TRANSACTIONAL_ID, "once-*", AclOperation.WRITE).covers("once")
    assert not Right(ResourceType.TRANSACTIONAL_ID, "once", AclOperation.WRITE).covers("once-0")
