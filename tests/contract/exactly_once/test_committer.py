"""Ending prepared transactions: one deadline for all, an outcome for each, several connections."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.exactly_once.committer import CONNECTIONS, EndVerdict, end_transactions
from spark_kafka_sink.exactly_once.session import session_for
from spark_kafka_sink.testing import KEPT, TestBroker
from tests.contract.exactly_once.runs import TOPIC, Query, new_process


def prepared(broker, tasks, **options):
    """As many transactions; the broker's log of requests begins afterwards."""
    broker.create_topic(TOPIC)
    query = Query(broker.bootstrap_servers, options=options)
    reports = query.tasks(query.plan(), 0, [[b"x"]] * tasks)
    new_process()
    broker.requests.clear()
    return query.settings, [report.share.prepared for report in reports]


def of(task):
    return lambda request: request.body.transactional_id == f"app-{task}"


@pytest.mark.parametrize(("tasks", "most"), [(1, 1), (2 * CONNECTIONS, CONNECTIONS)])
def test_transactions_are_spread_over_no_more_connections_than_they_need(tasks, most):
    with TestBroker() as broker:
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
def test_one_that_is_gone_or_refused_says_so_with_the_code_and_keeps_no_other_from_its_end(code, verdict):
    with TestBroker() as broker:
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
def test_the_deadline_ends_the_waiting_and_says_what_for(fault, timeout_ms, says):
    """Incident: "EndTxn for … has no response after -… ms", as the calls before it had taken all the time."""
    with TestBroker() as broker:
        settings, (transaction,) = prepared(broker, 1, **{"request.timeout.ms": 300})
        if fault == "silent":
            broker.faults.lose_answer("EndTxn", times=KEPT)
        else:
            broker.faults.answer("EndTxn", "COORDINATOR_LOAD_IN_PROGRESS", times=KEPT)
        (outcome,) = end_transactions(settings.producer, [(transaction, True)], timeout_ms)
    assert outcome.verdict is EndVerdict.UNDECIDED
    assert isinstance(outcome.error, KafkaTimeoutError)
    assert says in str(outcome.error)


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
