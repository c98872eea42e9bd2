"""Topics that are deleted and created again between a batch and its replay."""

from dataclasses import replace

import pytest

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, LostRowsError
from spark_kafka_sink.exactly_once.ledger_format import shown_id
from spark_kafka_sink.exactly_once.values import LedgerStart, RecoveryMode, WriteKind
from tests.contract.exactly_once.runs import TOPIC, Query, carried, committed
from tests.contract.exactly_once.test_protocol import EACH_ONCE, ROWS

ACCEPTED = LedgerStart(RecoveryMode.LEDGER, 5)


@pytest.fixture(autouse=True)
def brokers_that_know_new_topics_at_once(monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.exactly_once.commit.LAG_MS", 100.0)


def create_again(broker, topic=TOPIC):
    broker.delete_topic(topic)
    broker.create_topic(topic, partitions=2)


@pytest.fixture(params=[WriteKind.MICRO_BATCH, WriteKind.VERSION])
def writing(request, broker, query):
    """A stream, or a batch job with txnAppId; its batch 5 is committed."""
    if request.param is WriteKind.MICRO_BATCH:
        query.ledger_start = LedgerStart(RecoveryMode.CHECKPOINT, 5)
        query.run(5, ROWS)
        query.ledger_start = LedgerStart()
        return query
    job = Query(broker.bootstrap_servers, "nightly", "nightly", WriteKind.VERSION)
    job.run(5, ROWS)
    return job


def test_the_last_batch_runs_again_after_its_topic_was_created_again(broker, writing):
    """It used to succeed with nothing written, and the topic stayed empty."""
    (topic,) = writing.plan(5).entries[writing.query].topics
    create_again(broker)
    batch = "micro-batch 5" if writing.kind is WriteKind.MICRO_BATCH else "txnVersion 5"
    told = (
        f"{batch} of .* was committed into topic out .topic id {shown_id(topic.id)}., which was deleted and created "
        "again since. .*ledgerStart=trust-ledger:5 accepts it.*transactions forget.*--prefix "
        f"{writing.name} .*trust-checkpoint:5"
    )
    with pytest.raises(ExactlyOnceError, match=told):
        writing.run(5, ROWS)
    assert committed(broker) == {}
    accepting = replace(writing, ledger_start=ACCEPTED)
    assert accepting.run(5, ROWS).entry is None
    assert committed(broker) == {}
    writing.run(6, ROWS)
    assert committed(broker) == EACH_ONCE
    assert writing.run(6, ROWS).entry is None, "its rows are in the topic as it is now"


def test_incident_a_topic_that_two_tasks_knew_by_two_ids_was_told_with_the_present_one(broker, query):
    plan = query.plan()
    reports = [query.task(plan, 0, 0, [b"a"])]
    (old,) = reports[0].topics
    create_again(broker)
    query.commit([*reports, query.task(plan, 0, 1, [b"b"])])
    with pytest.raises(ExactlyOnceError, match=rf"into topic out .topic id {shown_id(old.id)}., which was deleted"):
        query.run(0, [[b"a"], [b"b"]])


def test_the_last_batch_runs_again_while_its_topic_is_missing(broker, writing):
    broker.delete_topic(TOPIC)
    outcome = writing.run(5, ROWS)
    assert (outcome.entry, outcome.missing) == (None, (TOPIC,))
    broker.create_topic(TOPIC, partitions=2)
    writing.run(6, ROWS)
    assert committed(broker) == EACH_ONCE


def test_topic_ids_that_no_task_knew_are_not_compared(broker, writing, monkeypatch):
    """As with brokers that have none."""
    monkeypatch.setattr("spark_kafka_sink.exactly_once.task.TaskTransaction._written", lambda task, ids: ())
    writing.run(6, ROWS)
    create_again(broker)
    assert writing.run(6, ROWS).entry is None


def tasks(query, *topics):
    """Two tasks, with a row for each topic."""
    plan = query.plan()
    reports = []
    for task, (topic, value) in enumerate(zip(topics, (b"a", b"b"), strict=True)):
        with query.open_task(plan, 0, task) as write:
            replace(query, topic=topic).append(write, [value])
            reports.append(carried(write.prepare()))
    return reports


def test_the_topics_are_those_of_all_tasks(broker, query):
    broker.create_topic("other")
    entry = query.commit(tasks(query, TOPIC, "other")).entry
    assert [topic.name for topic in entry.topics] == ["other", TOPIC]
    create_again(broker, "other")
    reports = tasks(query, TOPIC, "other")
    with pytest.raises(ExactlyOnceError, match="into topic other"):
        query.commit(reports)


def commit_torn(broker, query, *topics):
    broker.create_topic("other")
    reports = tasks(query, *topics)
    with pytest.raises(LostRowsError):
        query.commit(reports, lambda: broker.expire_transaction("app-1"))


def test_a_repaired_batch_keeps_the_topics_that_only_its_first_run_wrote_to(broker, query):
    commit_torn(broker, query, TOPIC, "other")
    assert [topic.name for topic in query.commit(tasks(query, TOPIC, "other")).entry.topics] == ["other", TOPIC]


def test_incident_a_topic_that_is_missing_when_a_torn_batch_is_repaired_was_not_told(broker, query):
    """Task 0 was committed into a topic that is deleted; the repair of task 1 said nothing of it."""
    commit_torn(broker, query, "other", TOPIC)
    broker.delete_topic("other")
    outcome = query.commit(tasks(query, "other", TOPIC))
    assert outcome.missing == ("other",)
    assert outcome.entry is not None
    assert committed(broker) == {b"b": 1}
