"""Batch jobs as a whole."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from chispa import assert_df_equality
from py4j.protocol import Py4JJavaError

from spark_kafka_sink.spark import activate_session, register_format
from tests.spark.worker_heap import LITTLE
from tests.spark.writes import fails, one_row, save, setting

pytestmark = pytest.mark.jvm


def test_a_frame_comes_back_as_it_was_written(spark, topic, to_topic):
    frame = spark.range(2_000).selectExpr(
        "cast(id % 100 as string) key", "if(id % 7 = 0, null, repeat(cast(id as string), id % 50)) value"
    )
    save(frame, to_topic)
    rows = [(record.key.decode(), record.value and record.value.decode()) for record in topic.records()]
    rows = [(key, "" if value == b"" else value) for key, value in rows]
    assert_df_equality(
        spark.createDataFrame(rows, "key string, value string"), frame, ignore_row_order=True, ignore_nullable=True
    )


@pytest.mark.parametrize("frame", ["no partitions", "empty partitions", "one row in one of many partitions"])
def test_empty_tasks_write_nothing_and_do_no_harm(spark, topic, to_topic, frame):
    rows = {
        "no partitions": spark.createDataFrame([], "value string"),
        "empty partitions": spark.range(100).repartition(3).filter("id < 0").selectExpr("cast(id as string) value"),
        "one row in one of many partitions": spark.range(0, 8, 1, 8).filter("id = 5").selectExpr("'v' value"),
    }[frame]
    save(rows, to_topic)
    assert topic.values() == ({b"v": 1} if frame.startswith("one") else {})


def test_an_empty_frame_needs_no_broker_but_for_the_drivers_check(spark):
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "driverCheck": "false"}
    save(spark.createDataFrame([], "value string"), options)


def test_large_types_of_arrow_are_written_too(spark, topic, to_topic):
    with setting(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        frame = one_row(
            spark, "'k' key", "X'00FF' value", f"'{topic.name}' topic", "map('a', X'01') headers", "2 partition"
        )
        save(frame, {"kafka.bootstrap.servers": topic.servers})
    (record,) = topic.records()
    assert (record.key, record.value, record.headers, record.partition) == (b"k", b"\x00\xff", (("a", b"\x01"),), 2)


def test_spark_does_not_go_through_a_workers_imports_after_every_task(spark, topic, to_topic):
    """pyspark.daemon collects garbage after each: 20 to 50 ms, were all modules' objects looked at."""

    options = {**to_topic, "kafka.partitioner.class": "tests.spark.worker_heap:ByHeap"}
    rows = spark.range(8).repartition(8).selectExpr("cast(id as string) value")
    for _ in range(2):
        save(rows, options)
    partitions = [record.partition for record in topic.records()]
    # The first task of each worker may go through all, and a worker may be new.
    assert len(partitions) == 16
    assert partitions.count(LITTLE) >= 8


@pytest.mark.parametrize("find", [activate_session, register_format])
def test_two_tables_in_two_threads(spark, topic, second_topic, to_topic, find):
    """A write from a thread without an active session failed with DATA_SOURCE_NOT_FOUND, as any write does after Ctrl-C
    (which loses the thread's session)."""
    session = spark.newSession()
    tables = {topic: "a", second_topic: "b"}

    def write(table):
        save(one_row(session, f"'{tables[table]}' value"), {**to_topic, "topic": table.name})

    with ThreadPoolExecutor(1) as threads, pytest.raises(Py4JJavaError, match="DATA_SOURCE_NOT_FOUND"):
        threads.submit(write, topic).result()
    with ThreadPoolExecutor(2, initializer=find, initargs=(session,)) as threads:
        list(threads.map(write, tables))
    assert (topic.values(), second_topic.values()) == ({b"a": 1}, {b"b": 1})


def test_incident_an_insert_did_not_say_that_spark_drops_the_options_of_a_table(spark, topic):
    """CREATE TABLE took them, and INSERT INTO said that they are required. What the error names works."""
    options = f"('kafka.bootstrap.servers' = '{topic.servers}', 'topic' = '{topic.name}')"
    spark.sql(f"CREATE TABLE to_kafka (value STRING) USING pykafka OPTIONS {options}")
    try:
        refused = fails(spark.sql, "INSERT INTO to_kafka SELECT 'a'")
        assert "Spark does not pass the OPTIONS of a table to INSERT INTO" in refused
        spark.sql(f"INSERT INTO to_kafka WITH {options} SELECT 'with'")
        spark.sql(f"CREATE TEMPORARY VIEW view_of_kafka (value STRING) USING pykafka OPTIONS {options}")
        spark.sql("INSERT INTO view_of_kafka SELECT 'view'")
        writer = one_row(spark, "'writeTo' value").writeTo("to_kafka")
        writer.option("kafka.bootstrap.servers", topic.servers).option("topic", topic.name).append()
    finally:
        spark.sql("DROP VIEW IF EXISTS view_of_kafka")
        spark.sql("DROP TABLE to_kafka")
    assert sorted(record.value for record in topic.records()) == [b"view", b"with", b"writeTo"]
