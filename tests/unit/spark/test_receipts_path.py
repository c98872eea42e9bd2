"""receiptsPath: tried on the driver before the first row, written by the process that holds the messages."""

import json
import logging
import pickle
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once.errors import ReceiptsPathError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, file_system, read_lines
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.exactly_once import abort_exactly_once, commit_exactly_once
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.receipts.receipt_reader import FolderReceipts
from spark_kafka_sink.spark.receipts.receipts_path import keep_receipts
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.write import write_rows
from spark_kafka_sink.spark.writers import KafkaBatchWriter, KafkaStreamWriter
from spark_kafka_sink.testing import TestBroker
from tests.unit.exactly_once.runs import LEDGER, TOPIC, Query, committed, new_process
from tests.unit.exactly_once.test_protocol import EACH_ONCE, ROWS, crash

SCHEMA = StructType([StructField("value", BinaryType())])


def options(path, servers="boot:9092", **more):
    return SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": TOPIC, "receiptspath": str(path), **more})


@pytest.fixture
def unwritable(tmp_path):
    """A path that lies under a file."""
    (tmp_path / "file").touch()
    return tmp_path / "file" / "receipts"


@pytest.mark.parametrize("writer", [KafkaBatchWriter, KafkaStreamWriter])
def test_a_path_that_cannot_be_written_is_refused_before_the_first_row(writer, unwritable):
    with pytest.raises(
        ReceiptsPathError, match="receiptsPath .*receipts cannot be written on the driver.*Set it to a directory"
    ):
        pickle.dumps(writer(RowLayout.of(SCHEMA, TOPIC, None), options(unwritable)))


def test_a_path_that_can_be_written_is_left_empty(tmp_path):
    pickle.dumps(KafkaBatchWriter(RowLayout.of(SCHEMA, TOPIC, None), options(tmp_path / "new" / "receipts")))
    assert list((tmp_path / "new" / "receipts").iterdir()) == []


def receipt(task, query="q1"):
    return WriteReceipt(query, 0, task, TOPIC, 0, 0, 1, 2, 10, 1, 2)


def test_receipts_that_cannot_be_kept_are_a_warning(unwritable, caplog):
    keep_receipts([KafkaCommitMessage(receipts=(receipt(0),))], options(unwritable, receiptstopic="receipts"))
    (line,) = caplog.messages
    assert line.startswith(f"All rows are committed, but receiptsPath {unwritable} could not be written:")
    assert line.endswith("receiptsTopic receipts has them.")


@pytest.fixture
def broker():
    with TestBroker() as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker
    new_process()


@pytest.fixture
def asked(broker, tmp_path):
    """The options of an exactly-once query with receiptsPath."""
    more = {"deliveryguarantee": "exactly-once", "transactionalidprefix": "app", "commitlogtopic": LEDGER}
    return options(tmp_path / "receipts", broker.bootstrap_servers, **more)


def messages(reports):
    return [
        KafkaCommitMessage((), report, (receipt(task),) if report.share.prepared else ())
        for task, report in enumerate(reports)
    ]


def kept(asked):
    """The tasks in the file of batch 0."""
    with open(f"{asked.receipts_path}/q1-0.jsonl") as file:
        return [json.loads(line)["task"] for line in file]


@pytest.fixture
def decided(broker, monkeypatch):
    """A query and the reports of its first batch, whose commit died with the intent recorded."""
    query = Query(broker.bootstrap_servers)
    reports = query.tasks(query.plan(), 0, ROWS)
    for killed in crash(monkeypatch, "intent committed"):
        with pytest.raises(killed):
            query.commit(reports)
    return query, reports


def test_an_abort_that_finishes_the_batch_writes_the_receipts_that_it_holds(broker, decided, asked):
    _, reports = decided
    new_process()
    assert abort_exactly_once(messages(reports), asked, None).level == logging.WARNING
    assert committed(broker) == EACH_ONCE
    assert kept(asked) == [0, 1]


def test_a_batch_that_was_finished_without_its_messages_is_one_warning(broker, decided, asked, caplog):
    query, _ = decided
    again = messages(query.tasks(query.plan(), 0, ROWS))
    new_process()
    commit_exactly_once(again, asked, SystemClock())
    keep_receipts(again, asked)
    (line,) = [line for line in caplog.messages if "receiptsPath" in line]
    assert "lacks the receipts of 2 tasks of micro-batch 0 of query q1" in line


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_hadoops_names_of_s3_are_s3(monkeypatch, scheme):
    """Incident: ``s3a://bucket/receipts`` was an unrecognized file system, and every Spark user writes it so."""
    asked = []
    monkeypatch.setattr(fs, "FileSystem", SimpleNamespace(from_uri=asked.append))
    file_system(f"{scheme}://bucket/receipts")
    assert asked == ["s3://bucket/receipts"]


def test_a_replay_of_a_batch_whose_receipts_are_kept_says_nothing(broker, asked, caplog):
    query = Query(broker.bootstrap_servers)
    first = messages(query.tasks(query.plan(), 0, ROWS))
    line = commit_exactly_once(first, asked, SystemClock()).line
    assert line.endswith(", committed exactly once (transactionalIdPrefix app)")
    keep_receipts(first, asked)
    keep_receipts(messages(query.tasks(query.plan(), 0, ROWS)), asked)
    assert [line for line in caplog.messages if "receiptsPath" in line] == []
    assert kept(asked) == [0, 1]


def read_all(path):
    return sorted((each.topic, each.task) for each in FolderReceipts(str(path), SystemClock()).read())


def test_two_batch_jobs_of_an_application_keep_the_receipts_of_both(tmp_path):
    asked = options(tmp_path)
    for task in (0, 1):
        writer = KafkaBatchWriter(RowLayout.of(SCHEMA, TOPIC, None), asked)
        writer.commit([KafkaCommitMessage(receipts=(receipt(task, "app"),))])
    assert read_all(tmp_path) == [(TOPIC, 0), (TOPIC, 1)]
    assert sorted(each.task for each in read_lines(str(tmp_path), "app", 0)) == [0, 1]
    assert read_lines(str(tmp_path), "ap", 0) == read_lines(str(tmp_path), "app", 1) == ()


def test_a_micro_batch_that_is_written_again_replaces_its_receipts(tmp_path):
    asked = options(tmp_path)
    for task in (0, 1):
        writer = KafkaStreamWriter(RowLayout.of(SCHEMA, TOPIC, None), asked)
        writer.commit([KafkaCommitMessage(receipts=(receipt(task),))], 0)
    assert read_all(tmp_path) == [(TOPIC, 1)]
    assert [each.task for each in read_lines(str(tmp_path), "q1", 0)] == [1]


NO_TOPIC = pa.record_batch({"topic": pa.array([None] * 3, pa.string()), "value": [b"v"] * 3})


@pytest.mark.parametrize("reasons", ["null-topic", "null-topic,record-too-large"])
@pytest.mark.parametrize("receipts", ["receiptspath", "receiptstopic"])
def test_a_task_whose_rows_are_all_dead_letters_in_files_reports_them(broker, tmp_path, reasons, receipts):
    broker.create_topic("receipts")
    more = {"deadletterpath": str(tmp_path / "letters"), "deadletteron": reasons, receipts: "receipts"}
    asked = SinkOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **more})
    message = write_rows(iter([NO_TOPIC]), RowLayout(topic=0, value=1), asked)
    assert message.figures.dead_letters == (("null-topic", 3),)
    (told,) = message.receipts
    assert (told.count, told.figures) == (0, message.figures)
    assert len(broker.topic("receipts").values()) == (receipts == "receiptstopic")


def test_a_task_without_rows_reports_nothing_and_opens_no_producer(tmp_path):
    asked = SinkOptions.parse({"kafka.bootstrap.servers": "boot:9092", "receiptspath": str(tmp_path)})
    assert write_rows(iter([NO_TOPIC.slice(3)]), RowLayout(topic=0, value=1), asked) == KafkaCommitMessage()


def test_an_exactly_once_task_whose_rows_are_all_dead_letters_in_files_has_a_receipt(broker, tmp_path):
    query = Query(broker.bootstrap_servers)
    with query.open_task(query.plan(), 0, 0) as task:
        task.meter.add_dead_letters("null-topic", 3)
        (told,) = task.receipts()
        report = task.prepare()
    assert told.figures.dead_letters == (("null-topic", 3),)
    assert 0 < told.began_at <= told.ended_at
    assert report.share.prepared is None
    with query.open_task(query.plan(), 0, 1) as task:
        assert task.receipts() == ()
