"""What the driver of the producer's transactions records, on a broker in this process, and that the checker agrees."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.testing import TestBroker
from tests.soak import planted
from tests.soak.checker import check
from tests.soak.events import COMMITTED, UNCOMMITTED, Recorder, read_history
from tests.soak.findings import Kind
from tests.soak.processes import START
from tests.soak.transfers import Transfer
from tests.soak.workloads import PARTITIONS, PLANTED, WORKLOADS

NAME = "transfers"


def read_everything(broker, record, topic, partitions):
    """What two readers of the topic would note at its end."""
    for reader, isolation in (("raw", UNCOMMITTED), ("fresh", COMMITTED)):
        for partition in range(partitions):
            found = broker.topic(topic).records(partition, read_committed=isolation == COMMITTED)
            where = {"reader": reader, "isolation": isolation, "topic": topic, "partition": partition}
            record("seen", **where, rows=[[each.offset, each.key.decode()] for each in found])
            record("passed", **where, offset=1_000)


@pytest.fixture
def broker():
    with TestBroker() as broker:
        broker.create_topic(NAME, partitions=PARTITIONS)
        yield broker


@pytest.fixture
def run(broker, tmp_path, monkeypatch):
    """Runs the transaction with this number, and gives the history as far as readers know it then."""
    monkeypatch.setenv(START, "1")
    record = Recorder(tmp_path, "test")
    record("workload", **WORKLOADS[NAME].writes[0].promised)
    config = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{NAME}-0"}
    with KafkaProducer(config) as producer:
        producer.init_transactions()

        def run(number):
            with suppress(KafkaError):
                Transfer(producer, record, NAME, number).run()
            read_everything(broker, record, NAME, PARTITIONS)
            return read_history(tmp_path)

        yield run


def outcomes(events, kind):
    return [event["outcome"] for event in events if event.kind == kind]


def test_a_transaction_that_is_committed(run):
    events = run(1)
    assert (outcomes(events, "intent"), outcomes(events, "verdict")) == (["asked", "decided"], ["committed"])
    assert sum(place[-1] for event in events if event.kind == "reported" for place in event["places"]) == 40
    assert check(events) == []


def test_every_fifth_transaction_is_aborted(run):
    events = run(5)
    assert (outcomes(events, "intent"), outcomes(events, "verdict")) == ([], ["failed"])
    assert check(events) == []


def test_nobody_knows_what_became_of_a_commit_that_failed(run, monkeypatch):
    def commit(producer):
        raise KafkaError("no broker responds")

    monkeypatch.setattr(KafkaProducer, "commit_transaction", commit)
    events = run(1)
    assert (outcomes(events, "intent"), outcomes(events, "verdict")) == (["asked", "unknown"], [])
    assert check(events) == []


def test_an_abort_that_commits_is_found(run, monkeypatch):
    monkeypatch.setattr(KafkaProducer, "abort_transaction", KafkaProducer.commit_transaction)
    found = {finding.kind for finding in check(run(5))}
    assert {Kind.ABORTED_READ, Kind.FAILED_BUT_VISIBLE} <= found


def test_a_producer_into_which_a_doubled_record_is_planted_is_found(run, monkeypatch):
    monkeypatch.setenv(PLANTED, "doubled")
    monkeypatch.setattr(KafkaProducer, "send", KafkaProducer.send)  # it is as before afterwards
    planted.change_producer(SimpleNamespace(KafkaProducer=KafkaProducer))
    assert Kind.DOUBLED in {finding.kind for finding in check(run(1))}
