"""Where markers are, what they tell, and what is left of them and of entries in the end."""

import logging
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import commit, ledger_topic
from spark_kafka_sink.exactly_once.commit import lost_tasks
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import entry_write, removal_write
from spark_kafka_sink.exactly_once.ledger_topic import ledger_partitions
from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.values import TaskAction
from spark_kafka_sink.testing import TestBroker
from tests.contract.exactly_once.runs import LEDGER, Query, committed, fence
from tests.support.waiting import DEADLINE_S

ROWS = [[b"a", b"b"], [b"c"]]
EACH_ONCE = {b"a": 1, b"b": 1, b"c": 1}
OLD = {"cleanup.policy": "compact", "segment.ms": 3_600_000}
DEADLINE_MS = 1_000 * DEADLINE_S


def left(broker):
    """The keys that compaction leaves, tombstones removed: partition and key."""
    last = {}
    for record in broker.topic(LEDGER).records(read_committed=True):
        last[record.partition, record.key] = record.value
    return sorted(key for (_, key), value in last.items() if value is not None)


def test_a_stream_leaves_one_entry_and_no_more_markers_than_its_last_batch_had_tasks(broker, query):
    query.run(0, [[b"%d" % task] for task in range(9)])
    query.run(1, [[b"x"]] * 4)
    assert left(broker) == [b'["app","q1",%d]' % task for task in range(4)] + [b'["app","q1"]']
    reports = query.tasks(query.plan(), 2, [[b"y"]] * 2)
    query.commit_killed_at(reports, "before done")
    query.run(3, [[b"z"]] * 3)
    assert left(broker) == [b'["app","q1",%d]' % task for task in range(3)] + [b'["app","q1"]']
    query.run(4, [[]])
    assert len(left(broker)) <= 2


def gone(query):
    """An intent whose transactions are committed and answer that they are gone; gives its batch's reports."""
    reports = query.tasks(query.plan(), 0, ROWS)
    query.commit_killed_at(reports, "before done")
    take_ids(query)
    return reports


def take_ids(query):
    for task in range(2):  # as InitProducerIds that arrive late: EndTxn finds other epochs
        fence({"bootstrap.servers": query.servers}, f"app-{task}")


@pytest.mark.parametrize("partitions", [10, 15, 30])
def test_a_topic_of_any_size_serves(broker, query, partitions):
    broker.create_topic(LEDGER, partitions, {"cleanup.policy": "compact"})
    gone(query)
    assert {report.action for report in query.tasks(query.plan(), 0, ROWS)} == {TaskAction.SKIP}
    query.run(1, [[b"d"]])
    assert committed(broker) == {**EACH_ONCE, b"d": 1}
    assert len(left(broker)) == 2


def test_a_topic_that_grows_meanwhile_is_asked_where_the_markers_were(broker, query):
    broker.create_topic(LEDGER, 10, {"cleanup.policy": "compact"})
    gone(query)
    broker.create_partitions(LEDGER, 20)
    assert {report.action for report in query.tasks(query.plan(), 0, ROWS)} == {TaskAction.SKIP}
    assert committed(broker) == EACH_ONCE


@pytest.fixture
def intent(broker, query):
    """A session that has read an intent, the intent, and its transactions."""
    gone(query)
    with closing(Session(query.settings, SystemClock())) as session:
        entry = session.ledger.read(session.deadline(DEADLINE_MS)).entries["q1"]
        yield session, entry, {task: share.prepared for task, share in enumerate(entry.tasks)}


@pytest.mark.parametrize("how", ["done", "removed"])
def test_nothing_is_asked_of_an_entry_that_another_process_carried_out(intent, how):
    session, entry, transactions = intent
    name, deadline = session.settings.name, session.deadline(DEADLINE_MS)
    write = entry_write(name, entry.done()) if how == "done" else removal_write(name, [entry], entry.marker_partition)
    session.record_write(session.init_driver(deadline), write, deadline)
    wrong = replace(entry, tasks=tuple(replace(share, marker=10_000) for share in entry.tasks))
    assert lost_tasks(session.ledger, wrong, transactions, session.deadline(DEADLINE_MS)) == frozenset()


def test_an_offset_that_the_log_does_not_have_yet_is_never_said_to_be_gone(intent):
    session, entry, transactions = intent
    ahead = replace(entry, tasks=tuple(replace(share, marker=10_000) for share in entry.tasks))
    # The last question may have a few ms left, and then is what fails.
    with pytest.raises(KafkaError, match="does not say yet what became|has no response"):
        lost_tasks(session.ledger, ahead, transactions, session.deadline(300))


def neighbour_of(query):
    """Another query, whose entries and markers are in the same partitions."""
    place = ledger_partitions(query.name, LEDGER)
    names = (f"other-{number}" for number in range(1000))
    name = next(each for each in names if ledger_partitions(each, LEDGER) == place)
    return replace(query, name=name, query="other")


def make_again(broker, query):
    """The ledger is created again by a neighbour, whose markers go beyond the offsets of the query's."""
    broker.delete_topic(LEDGER)
    other = neighbour_of(query)
    plan = other.plan()
    for _ in range(5):
        other.tasks(plan, 0, [[b"other"]] * 2)
    other.plan()


def test_a_batch_whose_markers_were_lost_with_the_ledger_is_not_decided(broker, query):
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, [[b"d"], [b"e"]])
    make_again(broker, query)
    with pytest.raises(ExactlyOnceError, match=f"is not committed: ledgerTopic {LEDGER} was deleted"):
        query.commit(reports)


def test_incident_a_response_that_lacked_the_ledger_was_taken_for_another_ledger(intent, monkeypatch):
    """The advice was to look in Kafka and to continue with a new name, which writes the rows twice."""
    session, entry, transactions = intent
    asked = []
    real = session.cluster.topic
    monkeypatch.setattr(session.cluster, "topic", lambda *call: real(*call) if asked else asked.append(call))
    session.ledger.topic_id, session.ledger._next_offset = None, None
    assert lost_tasks(session.ledger, entry, transactions, session.deadline(DEADLINE_MS)) == frozenset()
    assert asked


def test_tasks_that_found_two_ledgers_do_not_decide(query):
    reports = query.tasks(query.plan(), 0, ROWS)
    with pytest.raises(ExactlyOnceError, match="was deleted .* after its tasks wrote"):
        query.commit([replace(reports[0], ledger_id=uuid4()), *reports[1:]])
    unknown = [replace(reports[0], ledger_id=None), *reports[1:]]
    query.commit(unknown)


def test_incident_a_batch_whose_markers_were_lost_with_the_ledger_was_written_twice(broker, query, monkeypatch):
    """Its intent was in the new ledger, and its markers had been in the old one: all rows were taken for lost."""
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, [[b"d"], [b"e"]])
    real = commit._decide

    def decide(*arguments):
        make_again(broker, query)
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(commit, "_decide", decide)
        query.commit_killed_at(reports, "before done")
    take_ids(query)
    with pytest.raises(ExactlyOnceError, match=f"ledgerTopic {LEDGER} was deleted and created again"):
        query.run(1, [[b"d"], [b"e"]])
    assert (committed(broker)[b"d"], committed(broker)[b"e"]) == (1, 1)


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, logger="spark_kafka_sink.exactly_once")
    return caplog


def test_an_existing_topic_that_costs_too_much_is_told_once(broker, query, warnings):
    broker.create_topic(LEDGER, 10, OLD)
    query.plan()
    query.plan()
    (warning,) = [record.getMessage() for record in warnings.records if "ledgerTopic" in record.getMessage()]
    assert (
        "is weaker than wanted. The start of a query reads more: segment.ms=3600000 instead of 300000, "
        "delete.retention.ms=86400000 instead of 1800000, min.cleanable.dirty.ratio=0.5 instead of 0.1, partitions=10 "
        "instead of 20. "
    ) in warning


@pytest.mark.parametrize(
    ("replication", "in_sync", "told"),
    [
        (1, 1, ["replication.factor=1 instead of 3", "min.insync.replicas=1 instead of 2"]),
        (3, 1, ["min.insync.replicas=1 instead of 2"]),
        (3, 2, []),
    ],
)
def test_a_topic_of_weaker_replication_is_accepted_and_told(warnings, replication, in_sync, told):
    with TestBroker(nodes=3) as broker:
        settings = {**ledger_topic.SETTINGS, "min.insync.replicas": in_sync}
        broker.create_topic(LEDGER, 20, settings, replication)
        Query(broker.bootstrap_servers).plan()
        (said,) = [record.getMessage() for record in warnings.records] or [""]
        assert all(each in said for each in told)
        assert bool(said) == bool(told)


def test_the_topic_that_this_sink_creates_needs_no_mending(broker, query, warnings):
    query.plan()
    query.plan()
    assert not warnings.records
    assert ledger_partitions("app", LEDGER).marker_partition == ledger_partitions("app", LEDGER).partition + 10
