"""What the next driver of a workload may get instead of its own: options, a clock, an older sink."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, Producer

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.options import SinkOptions
from tests.faults.chaos.kafka import ChaosKafka
from tests.faults.chaos.plan import Step
from tests.faults.chaos.troubles import ABORT, COMMIT, PLANNING, TASK
from tests.histories import changes, hooks, job
from tests.histories.changes import (
    SWITCHED,
    ChangeError,
    clock_variables,
    copy_of_sink,
    options_switched,
    query_stopped,
    topic_recreated,
)
from tests.histories.events import read_history
from tests.histories.readers import Source, live_readers
from tests.histories.recorder import Recorder
from tests.histories.workloads import HALT_FILE, LETTERS, OPTIONS_FILE, PAIRS, PARTITIONS

_HERE = Path(__file__).parents[2]
_OFF_S = 600
_in_git = pytest.mark.skipif(not (_HERE / ".git").exists(), reason="this is no clone")


@_in_git
def test_a_copy_of_the_sink_is_imported_instead_of_this_one(tmp_path):
    folder = copy_of_sink("HEAD", tmp_path / "older")
    command = [sys.executable, "-c", "import spark_kafka_sink; print(spark_kafka_sink.__file__)"]
    path = {"PYTHONPATH": f"{folder}:{_HERE}"}
    done = subprocess.run(command, env=path, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(folder / "spark_kafka_sink" / "__init__.py")


@_in_git
def test_a_revision_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ChangeError, match="There is no older sink at v0"):
        copy_of_sink("v0", tmp_path / "older")


def git(folder, *arguments):
    command = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with two commits, instead of this one."""
    monkeypatch.setattr(changes, "_REPOSITORY", tmp_path)
    git(tmp_path, "init")
    for text in ("first", "second"):
        git(tmp_path, "commit", "--allow-empty", "-m", text)
    return tmp_path


def test_the_older_sink_is_that_of_the_last_tag_or_of_the_pinned_commit(clone, monkeypatch):
    assert changes.older_revision() is None
    first = git(clone, "rev-parse", "HEAD^")
    monkeypatch.setattr(changes, "PINNED", first)
    assert changes.older_revision() == first
    git(clone, "tag", "v1", first)
    assert changes.older_revision() == "v1"


# How many times its clocks are off by that much: the wall clock next to that of a process without the library, and the
# monotonic clock next to that of the system.
_TELLS = f"""
import subprocess, time
time.sleep(0.01)
right = subprocess.check_output(["/bin/date", "+%s"], env={{}}), open("/proc/uptime").read().split()[0]
print(*(round((clock() - float(told)) / {_OFF_S}) for clock, told in zip((time.time, time.monotonic), right)))
"""


@pytest.mark.slow  # fetches a package of Debian
def test_the_wall_clock_is_off_and_the_monotonic_clock_is_not():
    environment = {**clock_variables(_OFF_S), "PYTHONPATH": hooks.PYTHON_PATH}
    done = subprocess.run([sys.executable, "-c", _TELLS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.6, 0.9])
def test_switched_options_are_those_of_a_write(draw, tmp_path):
    drivers = SimpleNamespace(folder=tmp_path, starts=1, processes=lambda *_, **__: [])
    options_switched(SimpleNamespace(drivers=drivers), Step("options switched", 0.0, 0.0, draw))
    switched = json.loads((tmp_path / OPTIONS_FILE).read_text())
    assert switched.keys() == SWITCHED.keys()
    options = job.Job(None, None, "here:1", "", tmp_path, switched).exactly_once("topic", txnAppId="a", txnVersion=1)
    SinkOptions.parse({name.lower(): str(value) for name, value in options.items()})


def test_python_workers_get_a_clock_by_a_script(tmp_path, monkeypatch):
    variables = {"FAKETIME": "+600s"}
    victim = SimpleNamespace(workload=LETTERS, drivers=SimpleNamespace(folder=tmp_path))
    script = changes._python_with(variables, victim)
    command = [script, "-c", "import os, sys; print(os.environ['FAKETIME'], sys.argv[1])", "a b"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "+600s a b\n"


class Recreation:
    """A victim whose topic is created again; ``done`` has what happened in its order."""

    def __init__(self):
        self.done = []
        self.workload, self.readers = PAIRS, [self]
        self.source = Source(
            "here:1", dict.fromkeys(PAIRS.topics, 5), {topic: f"old {topic}" for topic in PAIRS.topics}
        )
        self.kafka = self.drivers = self.fault = self
        self.happened = True

    def arm(self, point, action, after=None):
        self.done.append(f"{action} {point}")

    def await_let_go(self, topic, _):
        assert topic not in self.source.topics
        self.done.append("readers let go")

    def record(self, kind, *, topic, incarnation, phase):
        assert (kind, topic) == ("topic", incarnation.split()[1])
        self.done.append(f"{phase} {incarnation.split()[0]}")

    def recreate(self, topic, partitions):
        assert partitions == PARTITIONS
        self.done.append("recreate")
        return f"new {topic}"

    def kill(self):
        self.done.append("driver dies")

    def wake(self):
        self.done.append("wakes")


class Halting:
    """A victim whose driver stops its query as soon as it is told to; ``done`` has what happened in its order."""

    def __init__(self):
        self.done = []
        self.drivers = self.fault = self.folder = self
        self.happened = True

    def __truediv__(self, name):
        assert name == HALT_FILE
        return self

    def touch(self):
        self.done.append("told to stop")

    def exists(self):
        return False

    def unlink(self, missing_ok):
        assert missing_ok

    def arm(self, point, action, after=None):
        self.done.append(f"{action} {point}")

    def release(self):
        self.done.append("goes on")


def test_a_query_is_stopped_at_each_step_of_the_protocol():
    done = set()
    for draw in range(300):
        victim = Halting()
        query_stopped(victim, Step("query stopped", 0.0, 0.0, draw / 300))
        done.add(tuple(victim.done))
    held = {(f"hold {point}", "told to stop", "goes on") for point in (*PLANNING, *TASK, *COMMIT, *ABORT)}
    assert done == {("told to stop",), *held}


class Query:
    """Spark's, which ends when it is stopped; ``done`` has what happened in its order."""

    def __init__(self, job, halts):
        self.done = []
        self._job, self._halts = job, halts
        self._now = "1 second"

    def trigger(self, **when):
        self._now = when.get("processingTime", "now")
        return self

    def start(self):
        self.done.append(f"starts {self._now}")
        return self

    def awaitTermination(self, timeout_s=None):  # noqa: N802 (Spark's name)
        file = self._job.folder / (HALT_FILE if len(self.done) < 2 * self._halts else "stop")
        file.touch()
        return False

    def stop(self):
        assert not (self._job.folder / HALT_FILE).exists()
        self.done.append("stops")


def test_a_query_that_is_stopped_goes_on_as_a_new_one(tmp_path):
    of_job = job.Job(None, None, "here:1", "", tmp_path, {})
    query = Query(of_job, halts=2)
    job.run_query(of_job, query)
    assert query.done == [*["starts 1 second", "stops"] * 3, "starts now"]


def test_a_query_whose_topic_was_created_again_is_accepted_as_its_error_says(tmp_path, monkeypatch):
    """Its driver starts it again with the value that the error has named."""
    given = []

    def run_query(job, into):
        given.append(into.given.get("ledgerStart"))
        raise KafkaError("… was deleted and created again since … ledgerStart=trust-ledger:7 accepts it")

    monkeypatch.setattr(job, "run_query", run_query)
    driver = job.Job(Frames(), Recorder(tmp_path, "test"), "here:1", "", tmp_path, {})
    for _ in range(2):
        with pytest.raises(KafkaError):
            job.letters(driver)
    assert given == [None, "trust-ledger:7"]
    assert [event["write"] for event in read_history(tmp_path.glob("*.jsonl")) if event.kind == "trusted"] == [
        "letters",
        "letters",
    ]


class Frames:
    """A session, its frames and its writer of streams, which only note the options of the last one."""

    def __init__(self):
        self.given = {}
        self.readStream = self.writeStream = self

    def option(self, name, value):
        return self

    def options(self, **options):
        self.given = options
        return self

    def __getattr__(self, name):
        return lambda *_: self


_RECREATED = ["readers let go", "deleted old", "recreate", "created new"]


def test_a_topic_is_created_again_at_each_step_of_the_protocol():
    done, again = set(), set()
    for draw in range(500):
        victim = Recreation()
        topic_recreated(victim, Step("topic recreated", 0.0, 0.0, draw / 500))
        (topic,) = [topic for topic, count in victim.source.topics.items() if count == PARTITIONS]
        assert victim.source.incarnations[topic] == f"new {topic}"
        again.add(topic)
        done.add(tuple(victim.done))
    ends = (["wakes"], ["driver dies", "wakes"])
    stopped = {(f"stop {point}", *_RECREATED, *end) for point in (*TASK, *COMMIT) for end in ends}
    assert done == {tuple(_RECREATED), *stopped}
    assert again == set(PAIRS.topics)


@pytest.mark.jvm
@pytest.mark.slow
def test_readers_go_on_with_a_topic_that_is_created_again(tmp_path):
    """It gets fewer partitions than it had, and the offsets of its records begin anew."""
    with ChaosKafka() as kafka:
        for topic in ("left", "again"):
            kafka.local.create_topic(topic, 2)
        ids = {topic: kafka.topic_id(topic) for topic in ("left", "again")}
        source = Source(kafka.servers, dict.fromkeys(ids, 2), dict(ids))
        readers = live_readers(source, tmp_path)
        for reader in readers:
            reader.start()
        recorder = Recorder(tmp_path, "test")
        victim = SimpleNamespace(source=source, readers=readers, kafka=kafka, record=recorder)
        try:
            for round_ in range(3):
                writer = Producer({"bootstrap.servers": kafka.servers})
                for topic in ids:
                    writer.produce(topic, "0", f"{topic}/{round_}/0", partition=1)
                assert writer.flush(60) == 0
                for reader in readers:
                    reader.await_passed(source.ends(IsolationLevel.READ_UNCOMMITTED), 60)
                changes._recreate(victim, "again")
        finally:
            for reader in readers:
                reader.close()
    events = read_history(tmp_path.glob("*.jsonl"))
    created = [event["incarnation"] for event in events if event.kind == "topic" and event["phase"] == "created"]
    seen = [event for event in events if event.kind == "seen" and event["reader"] == "live"]
    found = [(event["incarnation"], *row) for event in seen for row in event["rows"] if event["topic"] == "again"]
    assert found == [(each, 0, f"again/{n}/0") for n, each in enumerate([ids["again"], *created[:2]])]
    assert [row for event in seen for row in event["rows"] if event["topic"] == "left"] == [
        [n, f"left/{n}/0"] for n in range(3)
    ]


@pytest.mark.jvm
@pytest.mark.slow
def test_brokers_are_upgraded_and_a_full_disk_ends_one():
    with ChaosKafka(["3.9.1", "4.1.1"]) as kafka:
        kafka.local.create_topic("topic", 1)
        assert not kafka.knows_transaction_versions
        done = [kafka.upgrade() for _ in range(5)]
        assert done[3:] == ["the features of 4.1.1", ""]
        kafka.set_transaction_version(2)
        kafka.move_leader("topic", 0)
        kafka.grow("topic", 3)
        assert kafka.partitions("topic") == 3
        assert kafka.fill_disk(2, 60)
        kafka.start(2)
        kafka.local.await_in_sync("topic")
