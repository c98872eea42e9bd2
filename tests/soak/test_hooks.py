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
from spark_kafka_sink.exactly_once import committer, session
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.session import close_sessions
from spark_kafka_sink.spark import sink_write
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import KafkaBatchWriter
from spark_kafka_sink.testing import TestBroker
from tests.soak import hooks
from tests.soak.checker import check
from tests.soak.claims import claim_of
from tests.soak.events import ACTOR, COMMITTED, FOLDER, UNCOMMITTED, Recorder, read_history
from tests.soak.findings import Kind
from tests.soak.processes import START
from tests.soak.workloads import PLANTED

TOPIC = "job"
ROWS = [["job/1/0", "job/1/1", "job/1/2", "job/1/3"], ["job/1/4"]]
SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.fixture(params=["4.1", "3.9"])
def broker(request):
    with TestBroker(like=request.param) as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker


@pytest.fixture
def planted():
    """The fault that is in the sink."""
    return ""


@pytest.fixture
def record(planted, tmp_path, monkeypatch):
    """The pen of the test itself; what the hooks change is as before afterwards."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv(ACTOR, "job")
    monkeypatch.setenv(START, "1")
    monkeypatch.setenv(PLANTED, planted)
    for owner, names in (
        (sink_write.SinkWrite, ("write", "end", "give_up")),
        (session.Session, ("record",)),
        (committer.Committer, ("end", "abort")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    for module in (sink_write, session, committer):
        hooks.CHANGES[module.__name__](module)
    record = Recorder(tmp_path, "test")
    promised = {"name": "job", "exactly_once": True, "repeats": True, "rows": 5, "topic": TOPIC}
    record("workload", **promised, dead_letter_topic="", dead_letters=[])
    return record


@pytest.fixture
def history(broker, record, tmp_path):
    """Lets two readers read the topic to its end, and gives the history."""

    def finished():
        for reader, isolation in (("raw", UNCOMMITTED), ("fresh", COMMITTED)):
            for partition in range(2):
                found = broker.topic(TOPIC).records(partition, read_committed=isolation == COMMITTED)
                where = {"reader": reader, "isolation": isolation, "topic": TOPIC, "partition": partition}
                record("seen", **where, rows=[[each.offset, each.key.decode()] for each in found])
                record("passed", **where, offset=1_000)
        return read_history(tmp_path)

    return finished


def outcomes(events, kind):
    return [event["outcome"] for event in events if event["kind"] == kind]


@pytest.fixture
def job(broker, monkeypatch):
    """A job as Spark plans it, and what runs its tasks."""
    attempts = count()

    def planned():
        close_sessions()
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": TOPIC,
            "deliveryguarantee": "exactly-once",
            "txnappid": "job",
            "txnversion": "1",
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


def test_a_job_that_is_committed(job, history):
    writer = job.planned()
    writer.commit(job.tasks(writer))
    events = history()
    assert [event["rows"] for event in events if event["kind"] == "handed"] == ROWS
    assert [sum(place[-1] for place in event["places"]) for event in events if event["kind"] == "reported"] == [4, 1]
    assert outcomes(events, "intent") == ["asked", "decided"]
    assert outcomes(events, "end") == ["committed", "committed"]
    assert outcomes(events, "verdict") == ["committed"]
    assert check(events) == []


def test_a_job_that_is_aborted_and_run_again(job, history):
    writer = job.planned()
    writer.abort(job.tasks(writer))
    writer = job.planned()
    writer.commit(job.tasks(writer))
    events = history()
    assert [(event["start"], claim_of(event["text"])) for event in events if event["kind"] == "gave up"] == [
        ("1", "denied")
    ]
    assert outcomes(events, "end") == ["aborted"] * 2 + ["committed"] * 2
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
    assert [claim_of(event["error"]) for event in events if event["kind"] == "verdict"] == ["none", "denied"]
    assert check(events) == []


@pytest.mark.parametrize(
    ("planted", "kind"),
    [("lost", Kind.LOST), ("reordered", Kind.OUT_OF_ORDER), ("told wrongly", Kind.FAILED_BUT_VISIBLE)],
)
def test_a_fault_that_is_planted_into_the_sink_is_found(kind, job, history, record):
    writer = job.planned()
    record("began", write="job/1", start="1")
    messages = job.tasks(writer)
    with suppress(KafkaError):
        writer.commit(messages)
    assert kind in {finding.kind for finding in check(history())}
