"""A task that fails after its first rows: what becomes of its transaction, and of rows that arrive late."""

from contextlib import closing, suppress

import numpy as np
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.committer import Cluster
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2
from spark_kafka_sink.records.columns import RecordColumns, bytes_column
from spark_kafka_sink.records.encode import TRANSACTIONAL, BatchHeader, encode_records, stamp_header
from tests.contract.exactly_once.runs import committed
from tests.contract.exactly_once.test_protocol import EACH_ONCE, MORE, ROWS, TaskFailedError, fail


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
