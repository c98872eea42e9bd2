"""What people do to a query between two of its runs, or beside it: every row once, or an error that says why not."""

from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from kio.schema.errors import ErrorCode

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.values import TaskAction
from spark_kafka_sink.testing import LocalKafka
from spark_kafka_sink.tools.cli.main import main
from tests.contract.exactly_once.runs import end_transactions
from tests.faults.exactly_once.processes import LEDGER, KilledError
from tests.faults.exactly_once.test_crashes import EACH_ONCE, MORE, ROWS
from tests.support.waiting import until

pytestmark = pytest.mark.jvm
slow = pytest.mark.slow

BOTH = {**EACH_ONCE, b"e": 1, b"f": 1}


@pytest.fixture
def forgetful():
    """A Kafka that forgets a transactional id 15 seconds after its last transaction."""
    forget = {"transactional.id.expiration.ms": "15000"}
    often = {"transaction.remove.expired.transaction.cleanup.interval.ms": "200"}
    with LocalKafka(properties={**forget, **often}) as kafka:
        kafka.create_topic("forgotten", 2)
        yield kafka


def kill_between(query, number, rows):
    """A batch whose driver dies once it is decided and committed; returns what its tasks reported."""
    reports = query.tasks(query.plan(), number, rows)
    query.fault.arm("before done")
    with pytest.raises(KilledError):
        query.start_commit(reports).result()
    return reports


def test_of_two_queries_under_one_prefix_the_first_that_decides_a_batch_goes_on(query):
    other = replace(query, name="q2")
    reports = query.tasks(query.plan(), 0, ROWS)
    other.run(0, MORE)
    with pytest.raises(ExactlyOnceError, match="give each its own"):
        query.start_commit(reports).result()
    with pytest.raises(ExactlyOnceError, match="belongs to query q2, .*set ledgerStart=replaces:q2,"):
        query.run(0, ROWS)
    other.run(1, [[b"g"]])
    assert query.committed() == {b"e": 1, b"f": 1, b"g": 1}


def test_a_checkpoint_that_was_rolled_back_or_deleted_is_refused(query):
    query.run(0, ROWS)
    query.run(1, MORE)
    with pytest.raises(ExactlyOnceError, match="is older than the last batch in the ledger"):
        query.tasks(query.plan(), 0, ROWS)
    assert query.committed() == BOTH
    anew = replace(query, name="q2")
    with pytest.raises(ExactlyOnceError, match="belongs to query q1, whose last batch, 1, was"):
        anew.run(0, ROWS)
    assert query.committed() == BOTH


def test_an_operators_abort_beside_a_running_query_fails_its_batch_and_the_next_run_writes_it(query):
    query.run(0, ROWS)
    reports = query.tasks(query.plan(), 1, MORE)
    where = ["--bootstrap-server", query.servers, "--prefix", query.topic, "--ledger-topic", LEDGER]
    assert main(["transactions", "abort", *where, "--yes"]) == 0
    with pytest.raises(ExactlyOnceError, match="has fenced"):
        query.start_commit(reports).result()
    assert query.committed() == EACH_ONCE
    query.run(1, MORE)
    assert query.committed() == BOTH


@slow
def test_a_topic_with_more_partitions_and_then_made_again_between_runs(kafka, query):
    kill_between(query, 0, ROWS)
    admin = AdminClient({"bootstrap.servers": query.servers})
    admin.create_partitions([NewPartitions(query.topic, 4)])[query.topic].result()
    assert {report.action for report in query.tasks(query.plan(), 0, ROWS)} == {TaskAction.SKIP}
    query.run(1, MORE)
    assert query.committed() == BOTH
    kafka.delete_topic(query.topic)
    kafka.create_topic(query.topic, 2)
    with pytest.raises(ExactlyOnceError, match="was deleted and created again since"):
        query.run(1, MORE)
    query.run(2, ROWS)
    assert query.committed() == EACH_ONCE


@slow
def test_transactional_ids_that_the_broker_has_forgotten_leave_each_row_once(forgetful, query):
    query = replace(query, servers=forgetful.bootstrap_servers, topic="forgotten")
    query.run(0, ROWS)
    endings = [(report.outcome.prepared, True) for report in kill_between(query, 1, MORE)]
    until(
        lambda: end_transactions(query.settings.producer, endings, 10_000),
        lambda ends: {getattr(end.error, "code", None) for end in ends} == {ErrorCode.invalid_producer_id_mapping},
        "the broker knows the ids",
    )
    assert {report.action for report in query.tasks(query.plan(), 1, MORE)} == {TaskAction.SKIP}
    query.run(2, [[b"g"]])
    assert query.committed() == {**BOTH, b"g": 1}
