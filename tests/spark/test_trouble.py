"""Processes die in mid-write, brokers come and go, rows are many: what is in Kafka afterwards."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.functions import udf

from spark_kafka_sink.testing import LocalKafka
from tests.spark.killed_worker import ROWS_BEFORE
from tests.spark.topics import Topic
from tests.spark.worker_memory import peak_worker_memory
from tests.spark.writes import fails, one_off, save, setting, stream, streaming
from tests.support.waiting import until

pytestmark = pytest.mark.jvm


ROWS_OF_ARROW = "spark.sql.execution.arrow.maxRecordsPerBatch"


def steadily(is_back):
    """The number and some text; ten take 20 ms until the file is there."""

    @udf("string")
    def steadily(number):
        if number % 10 == 0 and not is_back.exists():
            time.sleep(0.02)
        return f"{number} {'x' * 1000}"  # so that Spark's buffers between its processes hold few rows

    return steadily


@pytest.mark.parametrize("way", ["batch", "stream"])
def test_a_worker_killed_in_mid_write_is_replaced_and_no_row_is_lost(spark, topic, to_topic, tmp_path, way):
    options = {**to_topic, "kafka.partitioner.class": "tests.spark.killed_worker:KilledOnce"}
    rows = spark.range(2 * ROWS_BEFORE).coalesce(1).selectExpr("cast(id as string) value")
    if way == "batch":
        save(rows, options)
    else:
        assert stream(streaming(rows, tmp_path / "in"), options, tmp_path / "checkpoint") == [0]
    times = topic.values()
    assert set(times) == {str(number).encode() for number in range(2 * ROWS_BEFORE)}
    sent_by_the_dead = {int(value) for value, count in times.items() if count == 2}
    assert sent_by_the_dead == set(range(ROWS_BEFORE)), "at least once: what the dead worker had sent is there twice"


@pytest.fixture(scope="module")
def restarted_kafka():
    with LocalKafka() as kafka:
        yield kafka


ROWS_PER_TASK = 15_000


@pytest.mark.parametrize("way_down", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_a_broker_restarted_in_mid_write_gets_every_row_once_and_in_order(spark, restarted_kafka, tmp_path, way_down):
    topic = Topic(restarted_kafka.bootstrap_servers, f"restarted-after-{way_down}")
    restarted_kafka.create_topic(topic.name, 3)
    is_back = tmp_path / "is-back"

    numbers = spark.range(0, 2 * ROWS_PER_TASK, 1, 2)
    rows = numbers.select((numbers.id % 20).cast("string").alias("key"), steadily(is_back)("id").alias("value"))

    def restart():
        await_rows(topic, 500)
        getattr(restarted_kafka, way_down)(1)
        restarted_kafka.start(1)
        is_back.touch()

    options = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}
    with setting(spark, ROWS_OF_ARROW, 100), ThreadPoolExecutor(1) as background:
        restarting = background.submit(restart)
        save(rows, options)
        assert restarting.done(), "the write ended before the broker was back"
    restarting.result()
    arrived = [(record.partition, int(record.value.partition(b" ")[0])) for record in topic.records()]
    assert sorted(number for _, number in arrived) == list(range(2 * ROWS_PER_TASK))
    last = {}
    for partition, number in arrived:
        place = partition, number // ROWS_PER_TASK
        assert last.get(place, -1) < number
        last[place] = number


def await_rows(topic, count):
    until(topic.count, lambda there: there >= count, "there are too few rows")


# Both counts must fill buffer.memory, however fast the broker is.
@pytest.mark.parametrize(
    ("few", "many", "buffer_memory"),
    [
        (500_000, 2_000_000, 8 << 20),
        pytest.param(2_000_000, 20_000_000, 32 << 20, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_workers_memory_does_not_grow_with_the_rows(spark, topic, to_topic, few, many, buffer_memory):
    options = {**to_topic, "kafka.buffer.memory": buffer_memory}

    def peak_of(rows):
        frame = spark.range(rows).coalesce(1).selectExpr("cast(id % 1000 as string) key", "rpad(id, 64, 'x') value")
        with peak_worker_memory(spark) as peak:
            save(frame, options)
        return peak.bytes

    peaks = peak_of(few), peak_of(many)
    assert topic.count() == few + many
    assert peaks[0] > 0
    assert peaks[1] - peaks[0] < 32 << 20, f"{few} rows: {peaks[0]:,} bytes, {many} rows: {peaks[1]:,} bytes"


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_incident_no_error_said_which_row_kafka_4_refused(spark, topic, second_topic, to_topic, guarantee):
    """Two tasks of 50 rows; row 10 of the second is two hours ahead."""
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "cast(id as string) value", "timestamp_seconds(unix_timestamp() + if(id = 60, 7200, 0)) at"
    )
    options = {**to_topic, "timestampColumn": "at"}
    text = fails(save, rows, one_off({**options, "deliveryGuarantee": guarantee}))
    assert re.search(r"record \d+ of its batch, row 10: INVALID_TIMESTAMP; Timestamp \d+ of message with offset", text)
    assert "(row 10 of task 1, counted from 0)" in text
    if guarantee == "at-least-once":
        dead = {"deadLetterTopic": second_topic.name, "deadLetterOn": "refused-by-broker", "kafka.batch.size": 200_000}
        before = topic.values()
        save(rows, options | dead)
        assert topic.values() - before == {b"%d" % row: 1 for row in range(100) if row != 60}
        (letter,) = second_topic.records()
        assert letter.value == b"60"
