"""Ending prepared transactions: one deadline for all, an outcome for each, several connections; and which broker a
question goes to when one of them is dead, gone or throttles."""

import struct
from contextlib import closing
from dataclasses import replace

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.model import Node, TopicPartition
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once.committer import CONNECTIONS, Cluster, EndVerdict
from spark_kafka_sink.exactly_once.ledger_topic import broker_limit_ms
from spark_kafka_sink.exactly_once.session import Session, session_for
from spark_kafka_sink.exactly_once.sweep import list_open
from spark_kafka_sink.testing import KEPT, TestBroker
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import LEDGER, TOPIC, Query, committed, end_transactions, new_process
from tests.support.waiting import DEADLINE_S


def prepared(broker, tasks, **options):
    """As many transactions; the broker's log of requests begins afterwards."""
    broker.create_topic(TOPIC)
    query = Query(broker.bootstrap_servers, options=options)
    reports = query.tasks(query.plan(), 0, [[b"x"]] * tasks)
    new_process()
    broker.requests.clear()
    return query.settings, [report.outcome.prepared for report in reports]


def of(task):
    return lambda request: request.body.transactional_id == f"app-{task}"


@pytest.mark.parametrize(("tasks", "most"), [(1, 1), (2 * CONNECTIONS, CONNECTIONS)])
def test_transactions_are_spread_over_no_more_connections_than_they_need(broker, tasks, most):
    settings, transactions = prepared(broker, tasks)
    outcomes = end_transactions(settings.producer, [(each, True) for each in transactions], 60_000)
    assert {outcome.verdict for outcome in outcomes} == {EndVerdict.COMMITTED}
    used = {seen.connection for seen in broker.requests.of("EndTxn")}
    assert min(tasks, 2) <= len(used) <= most
    assert len(broker.requests.of("ApiVersions")) <= most + 1, "and one to ask for the coordinator"


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ("PRODUCER_FENCED", EndVerdict.GONE),
        ("INVALID_PRODUCER_EPOCH", EndVerdict.GONE),
        ("INVALID_TXN_STATE", EndVerdict.GONE),
        ("INVALID_PRODUCER_ID_MAPPING", EndVerdict.GONE),
        ("TRANSACTION_ABORTABLE", EndVerdict.GONE),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", EndVerdict.UNDECIDED),
    ],
)
def test_one_that_is_gone_or_refused_says_so_with_the_code_and_keeps_no_other_from_its_end(broker, code, verdict):
    settings, transactions = prepared(broker, 2)
    broker.faults.answer("EndTxn", code, only=of(0))
    gone, ended = end_transactions(settings.producer, [(each, True) for each in transactions], 60_000)
    assert (gone.verdict, gone.identity) == (verdict, None)
    assert code in str(gone.error)
    assert ended.verdict is EndVerdict.COMMITTED


@pytest.mark.parametrize(
    ("fault", "timeout_ms", "says"),
    [
        ("refuses", 700, "no response after 700 ms: EndTxn for transactional.id app-0: COORDINATOR_LOAD_IN_PROGRESS"),
        ("refuses", -1_234, "no response after 0 ms"),
        ("silent", 700, "did not respond to EndTxn v5 within "),
    ],
)
def test_the_deadline_ends_the_waiting_and_says_what_for(broker, fault, timeout_ms, says):
    """Incident: "EndTxn for … has no response after -… ms", as the calls before it had taken all the time."""
    settings, (transaction,) = prepared(broker, 1, **{"request.timeout.ms": 300})
    if fault == "silent":
        broker.faults.lose_answer("EndTxn", times=KEPT)
    else:
        broker.faults.answer("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=KEPT)
    (outcome,) = end_transactions(settings.producer, [(transaction, True)], timeout_ms)
    assert outcome.verdict is EndVerdict.UNDECIDED
    assert isinstance(outcome.error, KafkaTimeoutError)
    assert says in str(outcome.error)


def test_incident_errors_named_node_4294967297(broker):
    """The number of a second connection to broker 1, and -1 for a bootstrap server."""
    settings, transactions = prepared(broker, 4, **{"request.timeout.ms": 300})
    broker.faults.lose_answer("EndTxn", times=KEPT)
    outcomes = end_transactions(settings.producer, [(each, True) for each in transactions], 1_000)
    assert all(f"{broker.bootstrap_servers} (id: 1) did not respond" in str(outcome.error) for outcome in outcomes)
    broker.kill(1)
    (outcome,) = end_transactions(settings.producer, [(transactions[0], True)], 100)
    assert f"Connection to {broker.bootstrap_servers} could not be established" in str(outcome.error)


def test_an_abort_of_transactions_version_1_fences_by_the_identity_and_sends_no_end():
    """EndTxn would leave the epoch as it is, and InitProducerId after it would write no markers."""
    with TestBroker(like="3.5") as broker:
        settings, transactions = prepared(broker, 4)
        end_transactions(settings.producer, [(each, True) for each in transactions[2:]], 60_000)
        broker.requests.clear()
        broker.faults.answer("InitProducerId", "PRODUCER_FENCED", only=of(1))
        broker.faults.answer("InitProducerId", "CONCURRENT_TRANSACTIONS", only=of(3))
        with session_for(settings) as session:
            outcomes = session.committer.abort(transactions, 60_000)
        assert [each.verdict for each in outcomes] == [EndVerdict.ABORTED, *[EndVerdict.GONE] * 3]
        assert not broker.requests.of("EndTxn")


CLOCK = SystemClock()
broker = broker_with()
brokers = broker_with(TOPIC, partitions=2, nodes=3)


def query(brokers, **options):
    return Query(brokers.bootstrap_servers, options={"request.timeout.ms": 400, **options})


@pytest.fixture
def cluster(brokers):
    with closing(Cluster(query(brokers).settings.producer, CLOCK)) as cluster:
        cluster.node_ids(soon())
        yield cluster


def soon(ms=1_000 * DEADLINE_S):
    return CLOCK.now() + ms


@pytest.mark.parametrize("node", [1, 2, 3])
def test_one_broker_that_hangs_is_not_asked_for_ever(brokers, cluster, node):
    brokers.pause(node)
    for _ in range(3):
        assert cluster.topic(TOPIC, soon()).partition_count == 2
        assert broker_limit_ms(cluster, soon()) == 900_000


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_query_goes_on_with_one_broker_dead(brokers, node):
    writer = query(brokers)
    writer.run(0, [[b"a"], [b"b"]])
    brokers.kill(node)
    writer.run(1, [[b"c"], [b"d"]])
    assert committed(brokers) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_session_outlives_the_only_bootstrap_server(brokers, node):
    """The committer knew kafka.bootstrap.servers alone: with its one server dead it found no coordinator any more."""
    address = brokers.bootstrap_servers.split(",")[node - 1]
    settings = replace(query(brokers), servers=address).settings
    with closing(Session(settings, CLOCK)) as session:
        session.verify_ledger(soon())
        session.init_driver(soon())
        brokers.kill(node)
        session.init_driver(soon())


def test_a_leader_that_left_the_cluster_is_looked_for_anew(brokers):
    with closing(Session(query(brokers).settings, CLOCK)) as session:
        session.verify_ledger(soon())
        session.ledger.read(soon())
        leader = brokers.leader(LEDGER, session.ledger.partitions.partition)
        brokers.kill(leader)
        session.cluster.pause(0)
        session.ledger.read(soon())
        session.cluster.refresh()
        assert leader not in session.cluster.node_ids(soon())
        partition = TopicPartition(LEDGER, session.ledger.partitions.partition)
        session.cluster._located[partition] = Node(leader, "localhost", 1)
        session.ledger.read(soon())


def test_transactions_are_listed_anew_when_a_broker_leaves_meanwhile(brokers):
    with closing(Session(query(brokers).settings, CLOCK)) as session:
        session.cluster.node_ids(soon())
        brokers.kill(3)
        list_open(session, soon())


# Longer than a test may take.
SLOW = {"request.timeout.ms": 3_600_000, "delivery.timeout.ms": 7_200_000}


def test_the_deadline_rules_whatever_the_request_timeout_is(brokers):
    settings = query(brokers, **SLOW).settings
    with closing(Cluster(settings.producer, CLOCK)) as cluster:
        cluster.node_ids(soon())
        for node in brokers.node_ids:
            brokers.pause(node)
        with pytest.raises(KafkaTimeoutError):
            cluster.topic(TOPIC, soon(500))


def without_topics(frame):
    """What a quota makes of a Fetch response (v12): a time to wait, and no partitions."""
    body = frame[4:9] + struct.pack(">ihi", 50, 0, 0) + b"\x01\x00"
    return struct.pack(">i", len(body)) + body


def test_a_throttled_fetch_is_waited_out(brokers):
    writer = query(brokers)
    writer.run(0, [[b"a"], [b"b"]])
    throttled = brokers.faults.mangle("Fetch", without_topics, times=2)
    writer.run(1, [[b"c"], [b"d"]])
    assert throttled.hits == 2
    assert committed(brokers) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
