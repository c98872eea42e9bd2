"""A stream and a job whose tasks have the same transactional ids, though their names differ."""

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import KafkaError, ProducerFencedError
from spark_kafka_sink.exactly_once.errors import PlanningError
from spark_kafka_sink.exactly_once.values import WriteKind
from spark_kafka_sink.records.columns import RecordColumns
from tests.contract.exactly_once.runs import TOPIC, Query, committed

REFUSED = "begin with orders-nightly-, and so do those of a query that has transactionalIdPrefix orders-nightly "


@pytest.fixture
def stream(broker):
    return Query(broker.bootstrap_servers, name="orders-nightly")


@pytest.fixture
def job(broker):
    """txnAppId=nightly with transactionalIdPrefix=orders."""
    return Query(broker.bootstrap_servers, "txn-nightly", "nightly", WriteKind.VERSION, prefix="orders-nightly")


def put(write, value, partition):
    write.append(TOPIC, RecordColumns(value=pa.array([value], pa.binary())), np.array([partition], np.int32))
    write.flush()


def test_incident_a_stream_that_started_in_mid_write_took_rows_of_a_job_that_was_told_committed(broker, stream, job):
    """The stream's planning aborted the job's transaction, and the task's next row began another one."""
    plan = job.plan(1)
    stream.run(0, [[b"s"]])

    def write_and_commit():
        with job.open_task(plan, 1, 0) as write:
            put(write, b"lost", 0)
            stream.plan()
            put(write, b"kept", 1)
            report = write.prepare()
        job.commit([report])

    with pytest.raises(KafkaError) as raised:
        write_and_commit()
    assert REFUSED in str(raised.value) or isinstance(raised.value, ProducerFencedError)  # as other brokers notice it
    assert committed(broker) == {b"s": 1}


def test_a_job_is_refused_before_it_ends_a_streams_transactions(broker, stream, job):
    stream.run(0, [[b"s"]])
    plan = stream.plan()
    with stream.open_task(plan, 1, 0) as write:
        stream.append(write, [b"t"])
        with pytest.raises(PlanningError, match=REFUSED):
            job.plan(1)
        report = write.prepare()
    stream.commit([report])
    assert committed(broker) == {b"s": 1, b"t": 1}


def test_incident_a_decided_job_stayed_visible_in_part_because_its_rerun_was_refused(broker, stream, job):
    reports = job.tasks(job.plan(1), 1, [[b"a"], [b"b"]])
    job.commit_killed_at(reports, "between EndTxns")
    stream.run(0, [[b"s"]])
    with pytest.raises(PlanningError, match=REFUSED):
        job.plan(1)
    assert committed(broker) == {b"a": 1, b"b": 1, b"s": 1}


def test_incident_a_coordinator_that_does_not_answer_took_a_quarter_of_the_time(broker, job, caplog):
    """Twice: at planning and at commit."""
    broker.faults.answer("DescribeTransactions", "COORDINATOR_NOT_AVAILABLE", times=10_000)
    job.run(1, [[b"j"]])
    assert committed(broker) == {b"j": 1}
    assert len([line for line in caplog.messages if "Whether the brokers know orders-nightly-driver" in line]) == 2


def test_a_job_whose_prefix_nobody_else_has_goes_on(broker, stream, job):
    stream.name = "orders"
    stream.run(0, [[b"s"]])
    job.run(1, [[b"j"]])
    job.run(2, [[b"k"]])
    assert committed(broker) == {b"s": 1, b"j": 1, b"k": 1}
