"""``kafka_batches`` and ``write_kafka`` before a job starts, and what a write returns."""

import logging
import pickle
from types import SimpleNamespace

import pytest
from pyspark import TaskContext

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark import kafka_batches, kafka_write, python_process, write_kafka
from spark_kafka_sink.spark.commit_message import Committed, KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.write_result import WriteResult

AT_LEAST_ONCE = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
EXACTLY_ONCE = {**AT_LEAST_ONCE, "deliveryGuarantee": "exactly-once"}


class Frame(SimpleNamespace):
    """As much of a DataFrame as is looked at before the job."""

    def mapInArrow(self, *_):  # noqa: N802 (Spark's name)
        raise AssertionError("a job has been started")


@pytest.fixture(autouse=True)
def process_of_sparks(monkeypatch):
    """A call of write_kafka makes the process the caller's, and the next tests stand for Spark's processes."""
    monkeypatch.setattr(python_process, "_is_callers", False)


def refused(call, *arguments) -> str:
    with pytest.raises(ConfigError) as raised:
        call(*arguments)
    return str(raised.value)


def test_a_streaming_frame_is_refused_with_the_way_that_works():
    assert "foreachBatch(kafka_batches(options))" in refused(write_kafka, Frame(isStreaming=True), AT_LEAST_ONCE)


def test_a_call_in_a_task_is_refused(monkeypatch):
    monkeypatch.setattr(TaskContext, "get", staticmethod(object))
    assert "KafkaProducer" in refused(write_kafka, Frame(isStreaming=False), AT_LEAST_ONCE)


def test_what_is_not_a_frame_is_refused():
    with pytest.raises(TypeError, match=r"not builtins\.list: spark\.createDataFrame makes one"):
        write_kafka([], AT_LEAST_ONCE)


def test_one_option_in_two_spellings_is_refused():
    frame = Frame(isStreaming=False, schema=None)
    assert "topic and Topic are the same option" in refused(write_kafka, frame, {**AT_LEAST_ONCE, "Topic": "u"})


def test_batches_of_an_exactly_once_query_need_its_name_and_number_themselves():
    told = refused(kafka_batches, {**EXACTLY_ONCE, "txnVersion": 1, "neverRepeated": True, "kafka.acks": "7"})
    assert "txnAppId is required" in told
    assert "txnVersion is refused" in told
    assert "neverRepeated is refused" in told
    assert "kafka.acks" in told


@pytest.mark.parametrize(("options", "version"), [({**EXACTLY_ONCE, "txnAppId": "orders"}, "7"), (AT_LEAST_ONCE, None)])
def test_the_batch_id_is_the_version_of_an_exactly_once_micro_batch(monkeypatch, options, version):
    given = []
    monkeypatch.setattr(kafka_write, "write_kafka", lambda frame, options: given.append(options))
    pickle.loads(pickle.dumps(kafka_batches(options)))(None, 7)
    assert given[0].get("txnversion") == version


def test_the_callers_logging_is_left_as_it_was():
    logger = logging.getLogger("spark_kafka_sink")
    before = logger.level, list(logger.handlers)
    python_process.leave_logging_to_caller()
    python_process.log_at("DEBUG")
    python_process.announce("a line")
    assert (logger.level, logger.handlers) == before


def test_a_result_has_one_entry_for_each_partition_that_several_tasks_wrote():
    tasks = [
        KafkaCommitMessage((PartitionWrite("t", 1, 2, 20, 5, 9), PartitionWrite("t", 0, 1, 10, 0, 0))),
        KafkaCommitMessage((PartitionWrite("t", 1, 3, 30, 2, 11),)),
    ]
    result = WriteResult.of(tasks, Committed("6 rows"), 1.5)
    assert result.partitions == (PartitionWrite("t", 0, 1, 10, 0, 0), PartitionWrite("t", 1, 5, 50, 2, 11))
    assert (result.rows, result.bytes, str(result), result.replayed) == (6, 60, "6 rows", False)


def test_a_replay_has_written_nothing():
    tasks = [KafkaCommitMessage((PartitionWrite("t", 1, 2, 20, 5, 9),))]
    result = WriteResult.of(tasks, Committed("was committed before", replayed=True), 1.5)
    assert (result.rows, result.bytes, result.partitions, result.replayed) == (0, 0, (), True)
