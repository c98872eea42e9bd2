"""Files of deadLetterPath: which write they belong to, and which run of it; what killed tasks leave behind."""

import base64
import json
import logging
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.dead_letters import files as file_module
from spark_kafka_sink.spark.dead_letters.files import LetterFiles, LetterRun, write_name
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.producer_cache import ProducerCache
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.source import KafkaDataSource
from spark_kafka_sink.spark.writers import KafkaBatchWriter, KafkaStreamWriter
from spark_kafka_sink.testing import TestBroker

QUERY = "30a1f898-eca0-4455-b028-a611186140be"
LAYOUT = RowLayout(value=0, headers=1)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
UNIQUE = "0" * 32


class Context:
    """What a task asks Spark for."""

    def __init__(self, properties, task, stage):
        self._properties = properties
        self._task = task
        self._stage = stage

    def get(self):
        return self

    def getLocalProperty(self, name):  # noqa: N802 (Spark's name)
        return self._properties.get(name)

    def partitionId(self):  # noqa: N802 (Spark's name)
        return self._task

    def stageId(self):  # noqa: N802 (Spark's name)
        return self._stage


class Job:
    """A write as Spark runs it: a row in each of ``tasks`` tasks, which is a dead letter in those of ``bad``."""

    def __init__(self, bad=(0,), *, tasks=2, kind=KafkaBatchWriter, **options):
        self.bad = bad
        self.tasks = tasks
        self.kind = kind
        self.options = {"topic": "out", **options}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Writes jobs one after the other into a folder, as one run of foreachBatch's micro-batch 3.

    ``batch`` None: as Spark Connect and threads of a pool run them, which tell neither query nor batch.
    """
    cache = ProducerCache(module.ProducerEngine)
    monkeypatch.setattr(module, "PRODUCERS", cache)
    executions = iter(range(100))

    def task(writer, number, bad):
        headers = pa.array([[(None if bad else "h", b"")]], HEADERS)
        rows = pa.record_batch({"value": [f"{writer.options.topic} {number}"], "headers": headers})
        return pickle.loads(pickle.dumps(writer.write(iter([rows]))))

    def run_(*jobs, batch=3, application="app-1"):
        outer = next(executions)
        for job in jobs:
            execution = next(executions) if job.kind is KafkaBatchWriter else outer
            properties = {"spark.app.id": application, "spark.sql.execution.id": str(execution)}
            if batch is None:
                properties["spark.sql.execution.root.id"] = str(execution)
            else:
                properties |= {"spark.sql.execution.root.id": str(outer), module.QUERY_ID: QUERY}
                properties[module.BATCH_ID] = str(batch)
            base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "deadletterpath": str(tmp_path)}
            writer = job.kind(LAYOUT, SinkOptions.parse({**base, **job.options}))
            messages = []
            for number in range(job.tasks):
                monkeypatch.setattr(module, "TaskContext", Context(properties, number, execution))
                messages.append(task(writer, number, number in job.bad))
            writer.commit(messages, *([] if job.kind is KafkaBatchWriter else [batch]))

    with TestBroker() as broker:
        yield run_
        cache.close()


@pytest.fixture
def found(tmp_path):
    """File → the values of its lines."""

    def read():
        files = {file.name: map(json.loads, file.read_text().splitlines()) for file in tmp_path.iterdir()}
        return {name: [base64.b64decode(line["value"]).decode() for line in lines] for name, lines in files.items()}

    return read


def test_the_second_write_of_a_micro_batch_put_its_dead_letters_in_the_place_of_the_firsts(run, found):
    expected = {f"{QUERY}-3-orders-0.jsonl": ["orders 0"], f"{QUERY}-3-audit-0.jsonl": ["audit 0"]}
    for application in ("app-1", "app-1", "app-2"):  # a replay in the same application, and after a restart
        run(Job(topic="orders"), Job(topic="audit"), application=application)
        assert found() == expected


def test_a_second_write_without_dead_letters_removed_those_of_the_first(run, found):
    run(Job(topic="orders"), Job(bad=(), topic="audit"))
    assert found() == {f"{QUERY}-3-orders-0.jsonl": ["orders 0"]}
    run(Job(bad=(), topic="orders"), Job(bad=(), topic="audit"))
    assert found() == {}


def test_writes_of_a_micro_batch_to_one_topic_have_files_of_their_own(run, found):
    jobs = Job(bad=(0,)), Job(bad=(0, 1)), Job(bad=()), Job(bad=(1,))
    names = [f"{QUERY}-3-out-{end}.jsonl" for end in ("0", "0.2", "1", "1.2")]
    for _ in range(3):
        run(*jobs)
        assert sorted(found()) == sorted(names)
    run(Job(bad=(0,)))
    assert f"{QUERY}-3-out-0.jsonl" in found()


def test_a_query_has_one_write_per_micro_batch_and_needs_no_topic_in_the_name(run, found):
    for _ in range(2):
        run(Job(kind=KafkaStreamWriter))
        assert found() == {f"{QUERY}-3-0.jsonl": ["out 0"]}
    run(Job(kind=KafkaStreamWriter), batch=4)
    assert sorted(found()) == [f"{QUERY}-3-0.jsonl", f"{QUERY}-4-0.jsonl"]


def test_a_replay_through_spark_connect_left_the_dead_letters_of_the_run_before(run, found):
    for application in ("app-1", "app-1", "app-2"):
        run(Job(topic="orders", deadlettername="orders-3"), batch=None, application=application)
        assert found() == {"orders-3-0.jsonl": ["orders 0"]}
    run(Job(topic="orders", deadlettername="orders-4"), batch=None)
    assert sorted(found()) == ["orders-3-0.jsonl", "orders-4-0.jsonl"]


def test_without_a_name_jobs_that_spark_does_not_tell_apart_lose_no_dead_letter(run, found):
    run(Job(), Job(), batch=None)
    run(Job(), batch=None, application="app-2")
    assert sorted(found().values()) == [["out 0"]] * 3


def test_killed_tasks_left_unfinished_files(run, found, tmp_path):
    mine, others = LetterFiles(f"{QUERY}-3-out"), LetterFiles(f"{QUERY}-4-out")
    left = [each.unfinished(task, UNIQUE) for each in (mine, others) for task in (0, 5)]
    for name in left:
        (tmp_path / name).touch()
    run(Job(bad=()))
    assert sorted(found()) == sorted(left[2:])


def test_a_replay_with_fewer_tasks_left_the_files_of_the_higher_ones(run, found, tmp_path):
    run(Job(bad=range(4), tasks=4), Job(bad=range(4), tasks=4, topic="audit"), Job(bad=range(4), tasks=4))
    others = ["orders.txt", f"{QUERY}-3-out-of-something.jsonl", f"{QUERY}-33-out-3.jsonl"]
    for name in others:
        (tmp_path / name).touch()
    run(Job(bad=range(4), tasks=2))
    audit = [f"{QUERY}-3-audit-{task}.jsonl" for task in range(4)]
    own = [f"{QUERY}-3-out-{end}.jsonl" for end in ("0", "1", "0.2", "1.2")]
    assert sorted(found()) == sorted(audit + own + others)


def test_a_write_beside_another_to_the_same_topic_removes_nothing_of_it(run, found, tmp_path):
    run(Job(bad=range(4), tasks=4), Job(bad=(0,), tasks=1))
    own = [f"{QUERY}-3-out-{end}.jsonl" for end in ("0", "0.2", "1", "2", "3")]
    assert sorted(found()) == sorted(own)


def committed(folder, *, complete):
    message = KafkaCommitMessage(letter_files=LetterFiles("w", LetterRun("app", "1", "2"), complete))
    file_module.remove_leftovers([message.letter_files], 2, str(folder))


def test_a_replay_that_only_compares_its_rows_removes_no_finished_file(tmp_path):
    for name in ("w-0.jsonl", "w-7.jsonl", LetterFiles("w").unfinished(7, UNIQUE)):
        (tmp_path / name).touch()
    committed(tmp_path, complete=False)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["w-0.jsonl", "w-7.jsonl"]
    committed(tmp_path, complete=True)
    assert [each.name for each in tmp_path.iterdir()] == ["w-0.jsonl"]


def test_the_unfinished_file_of_a_write_beside_this_one_stays(tmp_path):
    beside = LetterFiles("w", LetterRun("app", "1", "3")).unfinished(0, UNIQUE)
    (tmp_path / beside).touch()
    committed(tmp_path, complete=True)
    assert [each.name for each in tmp_path.iterdir()] == [beside]


def test_a_driver_that_cannot_reach_the_path_says_so_once_and_the_write_is_committed(tmp_path, caplog):
    file = tmp_path / "file"
    file.touch()
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        committed(tmp_path / "nobody-wrote-here", complete=True)
        assert caplog.messages == []
        for _ in range(2):
            committed("nowhere://folder", complete=True)
    (said,) = caplog.messages
    assert said.startswith("deadLetterPath nowhere://folder cannot be tidied up by the driver: ")


@pytest.mark.parametrize("topic", ["t", "t" * 249, "a.b-c_1"])
def test_the_name_of_a_file_is_one_that_file_systems_take(topic, tmp_path):
    files = LetterFiles(write_name(QUERY, 10**9, topic), LetterRun("application_1700000000000_0001", "10", "11"))
    for name in (files.of_task(10**6), files.unfinished(10**6, UNIQUE)):
        (tmp_path / name).touch()
    assert files.task_in(files.of_task(10**6, place=2)) == 10**6
    assert files.run_in(files.unfinished(1, UNIQUE)) == str(files.run)


def test_topics_whose_long_names_begin_alike_are_told_apart():
    assert write_name("q", 1, "t" * 120 + "a") != write_name("q", 1, "t" * 120 + "b")


def test_a_name_of_the_files_is_for_a_batch_write_with_a_path():
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t", "deadlettername": "orders-3"}
    with pytest.raises(ConfigError, match="deadLetterName: only with deadLetterPath"):
        SinkOptions.parse({**given, "deadlettertopic": "dead"})
    value = StructType([StructField("value", BinaryType())])
    with pytest.raises(ConfigError, match="deadLetterName is for batch writes"):
        KafkaDataSource({**given, "deadletterpath": "d"}).streamWriter(value, overwrite=False)
