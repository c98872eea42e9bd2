"""The hooks record what a job does on a broker in this process, and the checker agrees with what is in the log."""

from __future__ import annotations

import pickle
from contextlib import suppress
from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once import plan, session, steps
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.session import close_sessions
from spark_kafka_sink.producer.transactions import committer
from spark_kafka_sink.spark import sink_write
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.writers import KafkaBatchWriter
from spark_kafka_sink.testing import TestBroker
from tests.addresses import address_of
from tests.faults.chaos.processes import START
from tests.faults.chaos.requests import topic_id
from tests.faults.chaos.troubles import COMMIT, TASK
from tests.faults.support.kill_points import FaultInjectedError
from tests.histories import hooks
from tests.histories.checker import check
from tests.histories.claims import claim_of
from tests.histories.events import read_history
from tests.histories.findings import Kind
from tests.histories.index import COMMITTED, UNCOMMITTED
from tests.histories.job import Job
from tests.histories.recorder import ACTOR, FOLDER, Recorder

TOPIC = "job"
ROWS = [["job/1/0", "job/1/1"], ["job/1/2"]]
SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.fixture(params=["4.1", "3.9"])
def broker(request):
    with TestBroker(like=request.param) as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker
    close_sessions()


def incarnation_of(broker):
    return topic_id(address_of(broker.bootstrap_servers), TOPIC)


@pytest.fixture
def record(tmp_path, monkeypatch):
    """The pen of the test itself; what the hooks change is as before afterwards."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv(ACTOR, "job")
    monkeypatch.setenv(START, "1")
    for owner, names in (
        (sink_write.SinkWrite, ("write", "end", "give_up")),
        (session.Session, ("record",)),
        (committer.Committer, ("end", "abort")),
        (steps, ("reach",)),
        (plan, ("_plan",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    for module in (sink_write, session, committer, steps, plan):
        hooks.CHANGES[module.__name__](module)
    record = Recorder(tmp_path, "test")
    record("workload", name="job", exactly_once=True, repeats=True)
    return record


@pytest.fixture
def read(broker, record):
    """Lets readers record what is in the topic. ``passed``: nothing below that offset is to come."""

    def read(*readers, passed):
        for reader, isolation in readers:
            for partition in (0, 1):
                found = broker.topic(TOPIC).records(partition, read_committed=isolation == COMMITTED)
                where = {"reader": reader, "isolation": isolation, "topic": TOPIC, "partition": partition}
                where["incarnation"] = incarnation_of(broker)
                record("seen", **where, rows=[[each.offset, each.key.decode()] for each in found])
                record("passed", **where, offset=passed)

    return read


@pytest.fixture
def history(tmp_path, read):
    """Lets two readers read, and gives the history."""

    def finished():
        read(("raw", UNCOMMITTED), ("fresh", COMMITTED), passed=1_000)
        return read_history(tmp_path.glob("*.jsonl"))

    return finished


@pytest.fixture
def recreate(broker, record):
    """Creates the topic again."""

    def told(phase):
        record("topic", topic=TOPIC, incarnation=incarnation_of(broker), phase=phase)

    def recreate():
        told("deleted")
        broker.delete_topic(TOPIC)
        assert incarnation_of(broker) == ""
        broker.create_topic(TOPIC, partitions=2)
        told("created")

    return recreate


@pytest.fixture
def job(broker, monkeypatch):
    """A job as Spark plans it, and what runs its tasks."""
    attempts = count()

    def planned(**more):
        close_sessions()
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": TOPIC,
            "deliveryguarantee": "exactly-once",
            "txnappid": "job",
            "txnversion": "1",
            **more,
        }
        writer = KafkaBatchWriter(RowLayout.of(SCHEMA, TOPIC, None), SinkOptions.parse(given))
        return pickle.loads(pickle.dumps(writer))

    def tasks(writer):
        messages = []
        for task, rows in enumerate(ROWS):
            context = SimpleNamespace(
                partitionId=lambda task=task: task,
                taskAttemptId=lambda: next(attempts),
                attemptNumber=lambda: 0,
                getLocalProperty=lambda _: None,
            )
            monkeypatch.setattr(TaskContext, "get", staticmethod(lambda context=context: context))
            batch = pa.RecordBatch.from_pydict({"key": rows, "value": [row.encode() for row in rows]})
            messages.append(writer.write(iter([batch])))
        return messages

    return SimpleNamespace(planned=planned, tasks=tasks)


def outcomes(events, kind):
    return [event["outcome"] for event in events if event.kind == kind]


def test_a_job_that_is_committed(job, history):
    writer = job.planned()
    writer.commit(job.tasks(writer))
    events = history()
    assert [event["rows"] for event in events if event.kind == "handed"] == ROWS
    assert [sum(place[-1] for place in event["places"]) for event in events if event.kind == "reported"] == [2, 1]
    steps_of_planning = [event["step"] for event in events if event.kind == "step"]
    assert steps_of_planning == ["planning begins", "driver initialised", "planned"]
    assert outcomes(events, "intent") == ["asked", "decided"]
    assert outcomes(events, "end") == ["asked", "asked", "committed", "committed"]
    assert outcomes(events, "verdict") == ["committed"]
    assert check(events) == []


def test_a_job_that_is_aborted_and_run_again(job, history):
    writer = job.planned()
    writer.abort(job.tasks(writer))
    writer = job.planned()
    writer.commit(job.tasks(writer))
    events = history()
    assert [(event["start"], claim_of(event["text"])) for event in events if event.kind == "gave up"] == [
        ("1", "denied")
    ]
    assert sorted(outcomes(events, "end")) == ["aborted"] * 2 + ["asked"] * 4 + ["committed"] * 2
    assert check(events) == []


def test_a_run_that_was_replaced_is_told_that_it_failed(job, history, monkeypatch):
    old = job.planned()
    late = job.tasks(old)
    new = job.planned()
    monkeypatch.setenv(START, "2")
    new.commit(job.tasks(new))
    monkeypatch.setenv(START, "1")
    close_sessions()
    with pytest.raises(ExactlyOnceError, match="Another driver has fenced"):
        old.commit(late)
    events = history()
    assert outcomes(events, "intent") == ["asked", "decided", "asked", "not decided"]
    assert [claim_of(event["error"]) for event in events if event.kind == "verdict"] == ["none", "denied"]
    assert check(events) == []


def test_a_row_that_is_not_in_the_log_is_missed(job, history, broker, record):
    writer = job.planned()
    writer.commit(job.tasks(writer))
    record("handed", write="job/1", task=0, attempt="another", rows=["job/1/9"])
    assert [finding.kind.value for finding in check(history())] == ["rows lost"]


@pytest.fixture
def run(job, broker, record, tmp_path):
    """Runs the job as its driver does, which gives it what the error of the run before has named."""
    driver = Job(None, record, broker.bootstrap_servers, "", tmp_path, {})

    def run():
        writer = job.planned(ledgerstart=driver.version(TOPIC, 1).get("ledgerStart", "strict"))
        writer.commit(job.tasks(writer))

    return lambda: driver.told("job/1", run)


def test_a_job_whose_topic_was_created_again_is_accepted_as_its_error_says(job, history, run, recreate):
    """The driver died before it knew of the commit."""
    writer = job.planned()
    writer.commit(job.tasks(writer))
    recreate()
    with pytest.raises(ExactlyOnceError, match="deleted and created again since"):
        run()
    run()
    events = history()
    assert [event["ledger_start"] for event in events if event.kind == "trusted"] == ["trust-ledger:1"]
    told = [
        (event["outcome"], claim_of(event["error"]))
        for event in events
        if event.kind == "verdict" and event["by"] == "spark"
    ]
    assert told == [("failed", "decided"), ("committed", "none")]
    assert check(events) == []
    without = [event for event in events if event.kind != "topic"]
    assert {finding.kind.value for finding in check(without)} == {"told committed, but not visible"}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("step", sorted({*TASK, *COMMIT} - {"between EndTxns"}))
def test_a_topic_that_is_created_again_at_a_step(step, fails, history, read, run, recreate, record, monkeypatch):
    """The process goes on, or it fails there; the job runs until it succeeds. A process that is not stopped looks for
    its topics just before the intent."""
    reach, left = steps.reach, [step]

    def reached(now, task=None):
        reach(now, task)
        if now in left:
            left.remove(now)
            read(("raw", UNCOMMITTED), ("live", COMMITTED), passed=0)
            record("fault", name="topic recreated", workload="job", phase="begins")
            recreate()
            record("fault", name="topic recreated", workload="job", phase="ends")
            if fails:
                raise FaultInjectedError(now)

    monkeypatch.setattr(steps, "reach", reached)
    for _ in range(3):
        with suppress(KafkaError, FaultInjectedError):
            run()
            break
    else:
        pytest.fail("it does not succeed")
    assert left == []
    events = history()
    assert check(events) == []
    unexplained = {finding.kind for finding in check(event for event in events if event.kind != "fault")}
    assert unexplained == ({Kind.WITHOUT_ITS_TOPIC} if step == "before the intent" and not fails else set())


def test_only_a_topic_that_was_created_again_makes_a_driver_accept(record, tmp_path):
    """A source that is not repeatable is named with the same value."""
    driver = Job(None, record, "here:1", "", tmp_path, {})

    def run():
        raise ExactlyOnceError("committed with other rows: then ledgerStart=trust-ledger:1 accepts this batch")

    with pytest.raises(ExactlyOnceError):
        driver.told("job/1", run)
    assert "ledgerStart" not in driver.version("job", 1)
