"""An EndTxn that the network delivers after its transaction was ended by a repeated one (KAFKA-17754).

Before Kafka 4.0 EndTxn leaves the epoch as it is, so a late one would end the next transaction of the epoch.
"""

from __future__ import annotations

import itertools

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.committer import EndVerdict
from spark_kafka_sink.exactly_once.session import session_for
from spark_kafka_sink.exactly_once.sweep import list_open
from spark_kafka_sink.network import rpc
from spark_kafka_sink.producer import core
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.producer.transaction_requests import PreparedTransaction
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION
from tests.contract.exactly_once.runs import Query
from tests.faults.exactly_once.reader import is_open, read_committed
from tests.faults.support.proxy import Proxy, redirected

pytestmark = pytest.mark.jvm

OLD = "3.9.1"
END_TXN = 26
FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
ROWS, MORE = [[b"a"], [b"b"]], [[b"c"], [b"d"]]

_topics = (f"late-{number}" for number in itertools.count())


class Died(BaseException):
    """The process was killed here."""


@pytest.fixture(scope="module", params=[pytest.param(OLD, marks=pytest.mark.slow), DEFAULT_VERSION])
def kafka(request):
    with LocalKafka(version=request.param) as kafka:
        yield kafka


@pytest.fixture
def proxy(kafka, monkeypatch):
    """Everything goes through it."""
    host, port = kafka.bootstrap_servers.split(":")
    with Proxy((host, int(port))) as proxy:
        for module in (core, rpc):
            monkeypatch.setattr(module, "Selector", redirected({proxy.broker: proxy.address}))
        yield proxy


@pytest.fixture
def topic(kafka):
    name = next(_topics)
    kafka.create_topic(name, 1)
    return name


@pytest.fixture
def query(kafka, topic):
    return Query(kafka.bootstrap_servers, topic, topic=topic, options={"request.timeout.ms": 1_500})


@pytest.fixture
def at(monkeypatch):
    """What happens when a step is reached, once."""
    actions = {}
    monkeypatch.setattr(failpoints, "hit", lambda step, task=None: actions.pop(step, lambda: None)())
    return actions


def late(proxy) -> ErrorCode:
    """The held EndTxn is delivered; the broker's response to it."""
    assert proxy.holds
    correlation_tags_and_throttle = 4 + 1 + 4
    return ErrorCode(int.from_bytes(proxy.deliver()[correlation_tags_and_throttle:][:2], signed=True))


def values(kafka, topic) -> list[bytes]:
    return sorted(value for part in read_committed(kafka.bootstrap_servers, topic).values() for value in part)


def test_a_late_end_of_a_producers_transaction_does_not_end_its_next_one(kafka, proxy, topic):
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic, "request.timeout.ms": 1_500}
    with KafkaProducer(config) as sender:
        sender.init_transactions()
        sender.begin_transaction()
        sender.send(ProducerRecord(topic, value=b"a"))
        sender.flush()
        proxy.hold_request(END_TXN)
        sender.commit_transaction()
        assert values(kafka, topic) == [b"a"]
        sender.begin_transaction()
        sender.send(ProducerRecord(topic, value=b"b"))
        sender.flush()
        assert late(proxy) in FENCED
        assert is_open(kafka.bootstrap_servers, topic)
        sender.abort_transaction()
        sender.begin_transaction()
        sender.send(ProducerRecord(topic, value=b"c"))
        sender.commit_transaction()
    assert values(kafka, topic) == [b"a", b"c"]


def test_a_late_end_of_a_tasks_transaction_does_not_end_the_next_batchs(kafka, proxy, query, at):
    reports = query.tasks(query.plan(), 0, ROWS)
    at["intent committed"] = lambda: proxy.hold_request(END_TXN)
    query.commit(reports)
    assert values(kafka, query.topic) == [b"a", b"b"]
    reports = query.tasks(query.plan(), 1, MORE)
    assert late(proxy) in FENCED
    assert is_open(kafka.bootstrap_servers, query.topic)
    query.abort(reports)
    assert values(kafka, query.topic) == [b"a", b"b"]


def test_a_late_end_of_planning_does_not_decide_the_batch(kafka, proxy, query, at):
    def die():
        raise Died

    reports = query.tasks(query.plan(), 0, ROWS)
    at["intent committed"] = die
    with pytest.raises(Died):
        query.commit(reports)
    at["intent in the log"] = lambda: proxy.hold_request(END_TXN)  # of the record that batch 0 is done
    plan = query.plan()
    reports = query.tasks(plan, 1, MORE)

    def deliver_and_die():
        assert late(proxy) in FENCED
        die()

    at["intent in the log"] = deliver_and_die
    with pytest.raises(Died):
        query.commit(reports)
    outcome = query.abort(reports)
    assert (outcome.aborted, outcome.decided) == (2, ())
    assert values(kafka, query.topic) == [b"a", b"b"]
    query.run(1, MORE)
    assert values(kafka, query.topic) == [b"a", b"b", b"c", b"d"]


def test_a_late_end_of_the_intent_does_not_end_the_record_that_it_is_done(kafka, proxy, query, at):
    reports = query.tasks(query.plan(), 0, ROWS)

    def hold():
        proxy.hold_request(END_TXN)
        at["before done"] = lambda: at.__setitem__("intent in the log", deliver)

    def deliver():
        assert late(proxy) in FENCED

    at["intent in the log"] = hold
    assert query.commit(reports).cleanup_failure == ""
    assert not proxy.holds
    query.run(1, MORE)
    assert values(kafka, query.topic) == [b"a", b"b", b"c", b"d"]


def test_an_abort_of_an_earlier_attempt_ends_no_transaction_of_its_successor(kafka, proxy, topic, query):
    config = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic}
    with KafkaProducer(config) as sender:
        first = sender.init_transactions()
        sender.begin_transaction()
        sender.send(ProducerRecord(topic, value=b"a"))
        sender.flush()
    with KafkaProducer(config) as sender:
        sender.init_transactions()
        sender.begin_transaction()
        sender.send(ProducerRecord(topic, value=b"b"))
        prepared = sender.prepare_transaction()
    earlier = PreparedTransaction(topic, *first.identity, first.end_txn_version)
    with session_for(query.settings) as session:
        list_open(session, session.deadline(10_000))
        (aborted,) = session.committer.abort([earlier], 10_000)
        (ended,) = session.committer.end([(prepared, True)], 10_000)
    assert (aborted.verdict, ended.verdict) == (EndVerdict.GONE, EndVerdict.COMMITTED)
    assert values(kafka, topic) == [b"b"]
