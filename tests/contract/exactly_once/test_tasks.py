"""A task that fails after its first rows: what becomes of its transaction, and of rows that arrive late. And what a
worker keeps for the next task: a producer, which writes each task in a transaction of its own, and sessions."""

import os
import time
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError, RecordTooLargeError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.session import session_for
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.batch import TRANSACTIONAL, BatchHeader, stamp_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import encode_records
from spark_kafka_sink.spark.write import ProducerCache
from tests.contract.exactly_once.runs import TOPIC, Query, committed
from tests.contract.exactly_once.test_protocol import EACH_ONCE, MORE, ROWS, TaskFailedError, fail
from tests.support.waiting import DEADLINE_S, eventually


@pytest.mark.parametrize("step", ["receipts", "prepare"])
def test_a_task_that_fails_aborts_its_own_transaction_where_that_fences_it(broker, query, step):
    """Transactions version 1: its EndTxn would not bump the epoch. The next InitProducerId aborts it."""
    write = query.open_task(query.plan(), 0, 0)
    with pytest.raises(TaskFailedError):
        fail(write, lambda: query.append(write, ROWS[0]), getattr(write, step))
    fences = query.plan().run.driver.identity.end_txn_version >= END_TXN_V2
    assert broker.transaction_state("app-0") == ("CompleteAbort" if fences else "Ongoing")
    query.run(0, ROWS)
    assert committed(broker) == EACH_ONCE


def test_what_a_failed_task_sends_late_is_not_committed_with_its_successors_rows(broker, query):
    """EndTxn of transactions version 1 would leave partitions open to the rest of its rows."""
    query.run(0, ROWS)
    zombie = query.open_task(query.plan(), 1, 0)
    identities = []
    with pytest.raises(TaskFailedError):
        fail(
            zombie,
            lambda: query.append(zombie, [b"early"]),
            zombie.receipts,
            lambda: identities.append(identity_of(zombie)),
        )
    (partition,) = zombie.receipt.deliveries
    with suppress(KafkaError):
        send_late(query, partition, identities[0], b"late")
    query.run(1, MORE)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}


def identity_of(write):
    return write._core.transactions.identity


def send_late(query, partition, identity, value):
    """The second row of a transaction, after one in the same partition."""
    clock = SystemClock()
    payload = bytes(encode_records(RecordColumns(bytes_column([None]), bytes_column([value])), np.arange(1), 0).data)
    header = BatchHeader(TRANSACTIONAL, 1, 0, 0, *identity.identity, 1)
    with closing(Cluster(query.settings.producer, clock)) as cluster:
        batch = stamp_header(header, [payload]) + payload
        PartitionLog(cluster, partition).append(batch, identity, clock.now() + 3000)


def test_a_task_that_fails_while_no_broker_answers_raises_what_it_failed_with(broker, query):
    write = query.open_task(query.plan(), 0, 0)
    with pytest.raises(TaskFailedError):
        fail(write, lambda: query.append(write, ROWS[0]), lambda: broker.pause(1))
    broker.resume(1)


class Opened:
    """Counts the producers that a cache opens."""

    def __init__(self):
        self.producers = []
        self.cache = ProducerCache(self._open)

    def _open(self, config):
        self.producers.append(ProducerCore.open(config))
        return self.producers[-1]


@pytest.fixture
def opened():
    opened = Opened()
    yield opened
    opened.cache.close()


def query_of(broker, opened, **more):
    return Query(broker.bootstrap_servers, lease=opened.cache.leased, **more)


def test_the_next_task_leaves_what_was_prepared_alone(broker, opened):
    """Between one query's prepare and its commit another query's tasks run in the same worker."""
    first, second = query_of(broker, opened, name="one"), query_of(broker, opened, name="two")
    waiting = first.tasks(first.plan(), 0, ROWS)
    second.run(0, [[b"d"], [b"e"]])
    assert not committed(broker).keys() & EACH_ONCE.keys(), "the first query's rows are open"
    first.commit(waiting)
    assert committed(broker) == {**EACH_ONCE, b"d": 1, b"e": 1}
    assert len(opened.producers) == 1


def test_a_failed_task_closes_it_and_the_retry_writes_each_row_once(broker, opened):
    query = query_of(broker, opened)
    plan = query.plan()

    with pytest.raises(RecordTooLargeError):
        query.task(plan, 0, 0, [b"x" * 2_000_000])
    query.commit(query.tasks(plan, 0, ROWS))
    assert committed(broker) == EACH_ONCE
    assert [producer.is_alive() for producer in opened.producers] == [False, True]


def test_a_retry_in_the_same_worker_replaces_what_its_first_attempt_prepared(broker, opened):
    query = query_of(broker, opened)
    plan = query.plan()
    query.task(plan, 0, 0, ROWS[0])
    query.commit(query.tasks(plan, 0, ROWS))
    assert committed(broker) == EACH_ONCE


def test_a_topic_that_was_made_again_is_written_to_as_any_other(broker, opened):
    """The producer knows it by its old id until it hears otherwise."""
    query = query_of(broker, opened)
    query.run(0, ROWS)
    broker.delete_topic(TOPIC)
    broker.create_topic(TOPIC, partitions=2)
    time.sleep(0.3)  # as that takes on a real cluster: by then the producer may ask again
    query.run(1, ROWS)
    assert query.run(1, ROWS).entry is None, "its rows are in the topic as it is now"
    assert committed(broker) == EACH_ONCE
    assert len(opened.producers) == 1


MANY = 30


def open_files():
    return len(os.listdir("/dev/fd"))


def use(settings):
    """The session, when it has a connection."""
    with session_for(settings) as session:
        session.cluster.node_ids(session.deadline(1_000 * DEADLINE_S))
        return session


def test_batch_jobs_with_names_of_their_own_do_not_keep_sessions_without_bound(query):
    settings = query.settings
    for number in range(MANY):
        use(replace(settings, name=f"batch-{number}"))
    many = open_files()
    for number in range(MANY, 3 * MANY):
        use(replace(settings, name=f"batch-{number}"))
    eventually(lambda: open_files() <= many)  # the broker in this process closes its ends a moment later


def test_a_session_in_use_is_kept_among_many_others(query):
    settings = query.settings
    first = use(settings)
    for number in range(MANY):
        use(replace(settings, name=f"batch-{number}"))
        assert use(settings) is first
