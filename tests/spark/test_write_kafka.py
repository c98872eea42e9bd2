"""``write_kafka`` and ``kafka_batches``, in Sparks with Python data sources and without."""

import re
import signal
from threading import Event, Thread, main_thread

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark_kafka_sink.spark import kafka_batches, write_kafka
from tests.spark.writes import expected, lose_commit, numbers, streaming
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.jvm


@pytest.fixture
def exactly_once(topic, to_topic):
    return {**to_topic, "deliveryGuarantee": "exactly-once", "txnAppId": topic.name}


def test_the_result_tells_what_was_written_and_where(spark, topic, to_topic):
    result = write_kafka(numbers(spark, 0, 300), to_topic)
    assert topic.values() == expected(0, 300)
    assert result.rows == 300
    assert sum(each.last_offset + 1 for each in result.partitions) == 300
    assert str(result).startswith("300 rows (")


def test_incident_ignored_columns_of_a_join_failed_the_write(spark, topic, to_topic):
    """Two of one name were ambiguous, and Python cannot read the interval."""
    frame = numbers(spark, 0, 300).selectExpr("value", "1 AS id", "interval '3' month AS age", "upper(value) AS VALUE")
    joined = frame.join(spark.sql("select 1 AS id, timestamp'2026-01-01' AS at"), frame.id == 1)
    result = write_kafka(joined.selectExpr("*"), {**to_topic, "timestampColumn": "at"})
    assert (result.rows, topic.values()) == (300, expected(0, 300))
    assert {record.timestamp for record in topic.records()} == {1_767_225_600_000}


def test_a_repeated_write_is_recognized(spark, topic, exactly_once):
    for replayed in (False, True):
        result = write_kafka(numbers(spark, 0, 300), {**exactly_once, "txnVersion": 1})
        assert result.replayed is replayed
        assert topic.values() == expected(0, 300)


def test_a_frame_without_partitions_is_a_write_of_no_rows(spark, topic, exactly_once):
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), "value string")
    assert empty.rdd.getNumPartitions() == 0
    result = write_kafka(empty, {**exactly_once, "txnVersion": 1})
    assert (result.rows, result.replayed) == (0, False)
    again = write_kafka(empty, {**exactly_once, "txnVersion": 1})
    assert (again.rows, again.replayed) == (0, False), "a version without rows may be written over"


def test_incident_readers_waited_for_what_a_failed_first_version_had_prepared(spark, topic, to_topic, exactly_once):
    """Two tasks at a time: when the fourth begins, two of the others have ended, and their messages are lost."""
    frame = spark.range(0, 4, 1, 4).selectExpr("if(id = 3, raise_error('row 3'), cast(id as string)) value")
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        write_kafka(frame, {**exactly_once, "txnVersion": 1})
    notes = "\n".join(raised.value.__notes__)
    assert re.search(r"The write failed: .*row 3", notes, re.DOTALL)
    assert re.search(r": [23] prepared transactions were aborted", notes)
    write_kafka(numbers(spark, 0, 200), to_topic)
    write_kafka(numbers(spark, 200, 300), {**exactly_once, "txnVersion": 1})
    assert topic.values() == expected(0, 300)


def test_a_cancelled_stage_fails_the_call_which_aborts_what_its_tasks_wrote(spark, topic, exactly_once):
    context = spark.sparkContext
    slow = "if(spark_partition_id() = 0, id, java_method('java.lang.Thread', 'sleep', 60000L))"
    watch = Thread(target=_cancel_stage, args=(context,))
    watch.start()
    with pytest.raises((PySparkException, Py4JJavaError)) as raised:
        write_kafka(
            spark.range(0, 4, 1, 2).selectExpr(f"cast({slow} as string) value"), {**exactly_once, "txnVersion": 1}
        )
    watch.join()
    assert "abort" in "\n".join(raised.value.__notes__)
    assert topic.values() == {}
    write_kafka(numbers(spark, 0, 300), {**exactly_once, "txnVersion": 1})
    assert topic.values() == expected(0, 300)


def test_a_query_writes_each_micro_batch_once_over_restarts(spark, topic, exactly_once, tmp_path):
    for first in (0, 300):
        frame = streaming(numbers(spark, first, first + 300), tmp_path / "in")
        for _ in ("written", "repeated"):
            query = (
                frame.writeStream.foreachBatch(kafka_batches(exactly_once))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(DEADLINE_S), "the query is still running"
            assert topic.values() == expected(0, first + 300)
            lose_commit(tmp_path / "checkpoint", query.lastProgress["batchId"] if query.lastProgress else 0)


def test_an_interrupted_call_cancels_its_job_and_keeps_the_callers_job_group(spark, topic, exactly_once):
    context, group = spark.sparkContext, "of the caller"
    context.setJobGroup(group, "", interruptOnCancel=True)
    watch = Thread(target=_interrupt_when_running, args=(context, group))
    watch.start()
    slow = spark.range(4).selectExpr("cast(java_method('java.lang.Thread', 'sleep', 60000L) as string) value")
    with pytest.raises(KeyboardInterrupt) as raised:
        write_kafka(slow, {**exactly_once, "txnVersion": 1})
    watch.join()
    assert any("abort" in note for note in raised.value.__notes__)
    assert not context.statusTracker().getActiveJobsIds()
    (job,) = context.statusTracker().getJobIdsForGroup(group)
    assert context.statusTracker().getJobInfo(job).status == "FAILED", "not cancelled, it ran to its end"
    assert context.getLocalProperty("spark.jobGroup.id") == group
    context.setLocalProperty("spark.jobGroup.id", None)


def _interrupt_when_running(context, group):
    tracker, waited = context.statusTracker(), Event()
    for _ in range(int(DEADLINE_S / 0.1)):
        if any(tracker.getJobInfo(job).status == "RUNNING" for job in tracker.getJobIdsForGroup(group)):
            break
        waited.wait(0.1)
    signal.pthread_kill(main_thread().ident, signal.SIGINT)


def _cancel_stage(context):
    """Cancels the running stage of which a task has finished."""
    tracker, waited = context.statusTracker(), Event()
    for _ in range(int(DEADLINE_S / 0.1)):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None and info.numCompletedTasks == 1 and info.numActiveTasks == 1:
                context._jsc.sc().cancelStage(stage)
                return
        waited.wait(0.1)
