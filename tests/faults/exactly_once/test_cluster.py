"""A Kafka of three nodes: brokers die, the network parts and the protocol changes while a batch is being committed."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, PlanningError
from spark_kafka_sink.exactly_once.values import TaskAction
from spark_kafka_sink.testing import LocalKafka
from tests.faults.exactly_once.processes import LEDGER
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS
from tests.faults.exactly_once.three_nodes import (
    END_TXN,
    END_TXN_VERSIONS,
    IMPATIENT,
    PROPERTIES,
    SENT_END_TXN_VERSIONS,
    all_in_sync,
    await_end_txn_version,
    coordinator,
    cut_at_the_decision,
    cut_at_the_end,
)
from tests.faults.support.proxy import Direction

pytestmark = pytest.mark.jvm
slow = pytest.mark.slow

EACH_AND_MORE = {**EACH_ONCE, b"e": 1, b"f": 1}


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(nodes=3, properties=PROPERTIES) as kafka:
        yield kafka


def coordinator_of_a_task(kafka, query, plan):
    return coordinator(kafka, f"{query.topic}-1")


def coordinator_of_the_driver(kafka, query, plan):
    return coordinator(kafka, f"{query.topic}-driver")


def leader_of_the_rows(kafka, query, plan):
    return kafka.leader(query.topic, 0)


def leader_of_the_ledger(kafka, query, plan):
    return kafka.leader(LEDGER, plan.run.ledger.partition)


@pytest.mark.parametrize(
    ("node_of", "point"),
    [
        (coordinator_of_a_task, "between EndTxns"),
        pytest.param(leader_of_the_rows, "between EndTxns", marks=slow),
        pytest.param(leader_of_the_ledger, "between EndTxns", marks=slow),
        pytest.param(coordinator_of_the_driver, "intent in the log", marks=slow),
        pytest.param(leader_of_the_ledger, "intent in the log", marks=slow),
    ],
)
def test_a_broker_that_is_killed_with_an_end_in_its_hands_delays_it(kafka, query, node_of, point):
    """It hangs when EndTxn is sent, and never reads it."""
    plan = query.plan()
    reports = query.tasks(plan, 0, ROWS)
    node = node_of(kafka, query, plan)
    query.fault.arm(point, "stop")
    commit = query.start_commit(reports)
    query.fault.wait(commit)
    kafka.pause(node)
    query.fault.wake()
    time.sleep(0.5)
    kafka.kill(node)
    commit.result()
    kafka.start(node)
    all_in_sync(kafka, query)
    query.run(1, MORE)
    assert query.committed() == EACH_AND_MORE


@pytest.mark.slow
@pytest.mark.parametrize("direction", [Direction.TO_CLIENT, pytest.param(Direction.TO_BROKER, marks=slow)])
@pytest.mark.parametrize("cut", [cut_at_the_decision, cut_at_the_end])
def test_a_line_cut_in_an_end_is_made_again(kafka, parted, proxies, cut, direction):
    reports = parted.tasks(parted.plan(), 0, ROWS)
    commit, _ = cut(direction).strike(kafka, parted, proxies, reports)
    commit.result()
    assert parted.committed() == EACH_ONCE


@pytest.mark.slow
@pytest.mark.parametrize("direction", [Direction.TO_BROKER, pytest.param(Direction.TO_CLIENT, marks=slow)])
def test_a_network_that_stays_parted_is_told_and_a_restart_finishes(kafka, parted, proxies, direction):
    reports = parted.tasks(parted.plan(), 0, ROWS)
    parted.options = IMPATIENT
    commit, proxy = cut_at_the_end(direction, parted=True).strike(kafka, parted, proxies, reports)
    undone = rf"Batch 0 of q1 \(name {parted.topic}\) is decided, but \d of its 2 .* Start the query again"
    with pytest.raises(ExactlyOnceError, match=undone):
        commit.result()
    with pytest.raises(PlanningError, match=rf"under the name {parted.topic} cannot start: "):
        parted.plan()
    parted.options = {}
    proxy.heal()
    again = parted.tasks(parted.plan(), 0, ROWS)
    assert {report.action for report in again} == {TaskAction.SKIP}
    parted.start_commit(again).result()
    parted.run(1, MORE)
    assert parted.committed() == EACH_AND_MORE


@slow
@pytest.mark.parametrize(("direction", "decided"), [(Direction.TO_CLIENT, True), (Direction.TO_BROKER, False)])
def test_a_decision_that_nobody_can_tell_is_told_and_abort_finds_out(kafka, parted, proxies, direction, decided):
    """The broker has recorded the intent, or has not: abort reads it once the network is whole."""
    reports = parted.tasks(parted.plan(), 0, ROWS)
    parted.options = IMPATIENT
    commit, proxy = cut_at_the_decision(direction, parted=True).strike(kafka, parted, proxies, reports)
    untold = rf"micro-batch 0 of query q1 \(name {parted.topic}\) .* Start the query again"
    with pytest.raises(ExactlyOnceError, match=untold):
        commit.result()
    parted.options = {}
    proxy.heal()
    outcome = parted.abort(reports)
    assert (bool(outcome.decided), outcome.aborted) == ((True, 0) if decided else (False, 2))
    assert parted.committed() == (EACH_ONCE if decided else {})
    parted.run(0, ROWS)
    assert parted.committed() == EACH_ONCE


@pytest.fixture
def finalize(kafka):
    """Finalizes transaction.version, as an operator does after an upgrade; the newest again in the end."""
    yield lambda level: kafka.set_feature("transaction.version", level)
    kafka.set_feature("transaction.version", 2)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(1, 2), pytest.param(2, 1, marks=slow)])
def test_the_protocol_changes_between_two_attempts_of_an_end(kafka, parted, proxies, finalize, before, after):
    """Every attempt uses the version of EndTxn that the transaction began with, whatever the cluster now prefers."""
    finalize(before)
    await_end_txn_version(parted, END_TXN_VERSIONS[before])
    reports = parted.tasks(parted.plan(), 0, ROWS)
    commit, proxy = cut_at_the_end(Direction.TO_CLIENT, parted=True).strike(kafka, parted, proxies, reports)
    finalize(after)
    await_end_txn_version(parted, END_TXN_VERSIONS[after])
    proxy.heal()
    commit.result()
    assert set().union(*(each.versions(END_TXN) for each in proxies.values())) == {SENT_END_TXN_VERSIONS[before]}
    parted.run(1, MORE)
    assert parted.committed() == EACH_AND_MORE
