"""Exactly-once through Spark: queries and jobs that end well, and what each refuses."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from spark_kafka_sink.spark import kafka_batches, write_kafka
from spark_kafka_sink.tools.cli.main import main
from tests.spark.writes import fails, lose_commit, one_off, save, stream, streaming
from tests.support.waiting import DEADLINE_S, eventually

pytestmark = pytest.mark.jvm


@pytest.fixture
def to_topic(topic):
    return {
        "kafka.bootstrap.servers": topic.servers,
        "topic": topic.name,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": topic.name,
    }


def committed(topic) -> dict[bytes, int]:
    """How often each value is there for a read_committed reader; control records are none."""
    settings = {"bootstrap.servers": topic.servers, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    values: dict[bytes, int] = {}
    try:
        partitions = consumer.list_topics(topic.name, timeout=DEADLINE_S).topics[topic.name].partitions
        consumer.assign([TopicPartition(topic.name, partition, 0) for partition in partitions])
        left = set(partitions)
        while left:
            message = consumer.poll(30)
            assert message is not None, f"partitions {left} do not come to their end"
            if message.error():
                left.discard(message.partition())
            else:
                values[message.value()] = values.get(message.value(), 0) + 1
    finally:
        consumer.close()
    return values


def numbers(spark, first, end):
    return spark.range(first, end).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")


def expected(first, end):
    return {str(number).encode(): 1 for number in range(first, end)}


def test_a_query_writes_each_row_once_over_restarts(spark, topic, to_topic, tmp_path):
    for first in (0, 300):
        frame = streaming(numbers(spark, first, first + 300), tmp_path / "in")
        stream(frame, to_topic, tmp_path / "checkpoint")
        assert committed(topic) == expected(0, first + 300)


def test_a_micro_batch_whose_commit_spark_lost_is_not_written_again(spark, topic, to_topic, tmp_path):
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    stream(frame, to_topic, tmp_path / "checkpoint")
    lose_commit(tmp_path / "checkpoint", 0)
    assert stream(frame, to_topic, tmp_path / "checkpoint") == [0]
    assert committed(topic) == expected(0, 100)


def test_many_micro_batches_go_through_one_query(spark, topic, to_topic, tmp_path):
    for first in range(0, 500, 100):
        streaming(numbers(spark, first, first + 100), tmp_path / "in")
    source = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", "1")
    assert stream(source.parquet(str(tmp_path / "in")), to_topic, tmp_path / "checkpoint") == [0, 1, 2, 3, 4]
    assert committed(topic) == expected(0, 500)


def test_a_batch_job_becomes_visible_as_a_whole(spark, topic, to_topic):
    save(numbers(spark, 0, 1000), one_off(to_topic))
    assert committed(topic) == expected(0, 1000)


def test_a_failed_job_shows_nothing_and_holds_nobody_up(spark, topic, to_topic):
    frame = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) value", "if(id = 999, -1, 0) partition")
    assert "Invalid partition: -1" in fails(save, frame, one_off(to_topic))
    assert committed(topic) == {}


def test_a_version_is_written_once(spark, topic, to_topic):
    versioned = {**to_topic, "txnAppId": f"{topic.name}-nightly", "txnVersion": 3}
    save(numbers(spark, 0, 100), versioned)
    save(numbers(spark, 0, 100), versioned)
    assert committed(topic) == expected(0, 100)
    save(numbers(spark, 100, 200), {**versioned, "txnVersion": 4})
    assert committed(topic) == expected(0, 200)


def test_a_version_under_another_prefix_is_not_written_again(spark, topic, to_topic):
    app = {"txnAppId": f"{topic.name}-app", "txnVersion": 3}
    save(numbers(spark, 0, 100), {**to_topic, **app, "transactionalIdPrefix": f"{topic.name}-one"})
    save(numbers(spark, 0, 100), {**to_topic, **app, "transactionalIdPrefix": f"{topic.name}-two"})
    without = {name: value for name, value in to_topic.items() if name != "transactionalIdPrefix"}
    save(numbers(spark, 0, 100), {**without, **app})
    assert committed(topic) == expected(0, 100)


def test_one_txn_app_id_for_two_topics_is_refused(spark, topic, second_topic, to_topic):
    app = {**to_topic, "txnAppId": f"{topic.name}-app"}
    save(numbers(spark, 0, 100), {**app, "txnVersion": 3})
    text = fails(save, numbers(spark, 0, 100), {**app, "txnVersion": 4, "topic": second_topic.name})
    assert f"Use one txnAppId for each, such as txnAppId={topic.name}-app-{second_topic.name}" in text
    assert committed(second_topic) == {}
    assert committed(topic) == expected(0, 100)


def test_two_batch_jobs_with_one_prefix_at_the_same_time_both_succeed(spark, topic, to_topic):
    def job(first):
        rows = [(str(number),) for number in range(first, first + 100)]
        frame = spark.createDataFrame(rows, "value string")  # which makes the session this thread's, too
        save(frame, one_off(to_topic))

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(job, first) for first in (0, 100)]:
            each.result(timeout=DEADLINE_S)
    assert committed(topic) == expected(0, 200)


def test_incident_a_job_that_was_started_twice_tore_what_its_second_run_had_prepared(spark, topic, to_topic, tmp_path):
    """Tasks of the first run, which was fenced, took the ids of the second run's prepared transactions."""
    options = {**to_topic, "txnAppId": f"{topic.name}-nightly", "txnVersion": 1}

    def job(run, held):
        def wait(value):
            if value == held:
                (tmp_path / f"{run} waits").touch()
                eventually((tmp_path / f"{run} goes on").exists)
            return value

        rows = spark.createDataFrame([("0",), ("1",)], "value string")  # a task for each
        save(rows.select(udf(wait, "string")("value").alias("value")), options)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(job, "first", held="0")
        eventually((tmp_path / "first waits").exists)
        second = pool.submit(job, "second", held="1")
        eventually((tmp_path / "second waits").exists)  # its task 0 has prepared
        (tmp_path / "first goes on").touch()
        assert f"has fenced txn-{topic.name}-nightly-driver" in fails(first.result)
        (tmp_path / "second goes on").touch()
        second.result(timeout=DEADLINE_S)
    assert committed(topic) == {b"0": 1, b"1": 1}


def test_for_each_batch_is_idempotent_with_its_number_as_version(spark, topic, to_topic, tmp_path):
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")

    def write(batch, number):
        save(batch, {**to_topic, "txnAppId": topic.name, "txnVersion": number})

    def run():
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    run()
    lose_commit(tmp_path / "checkpoint", 0)
    run()
    assert committed(topic) == expected(0, 100)


@pytest.mark.parametrize("thread", ["Spark's", "pool, kafka_batches", "pool that inherits"])
def test_foreach_batch_whose_ledger_was_lost_is_refused_until_its_checkpoint_is_trusted(
    spark, topic, to_topic, tmp_path, thread
):
    """Another ledgerTopic is as good as a ledger that was lost. On a pool's thread, Spark does not tell the number
    of the micro-batch, and it was written twice."""

    def run(**options):
        def write(batch, number):
            app = {**to_topic, "txnAppId": topic.name, **options}
            if thread == "Spark's":
                save(batch, {**app, "txnVersion": number})
                return
            with ThreadPoolExecutor(1) as pool:
                if thread == "pool that inherits":
                    written = pool.submit(inheritable_thread_target(write_kafka), batch, {**app, "txnVersion": number})
                else:
                    written = pool.submit(kafka_batches(app), batch, number)
                written.result()

        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(60)

    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    run()
    frame = streaming(numbers(spark, 100, 200), tmp_path / "in")
    elsewhere = {"ledgerTopic": f"{topic.name}-log"}
    text = fails(run, **elsewhere)
    assert "txnVersion 1 of" in text
    assert "set ledgerStart=trust-checkpoint:1." in text
    assert committed(topic) == expected(0, 100)
    run(**elsewhere, ledgerStart="trust-checkpoint:1")
    assert committed(topic) == expected(0, 200)


def test_an_older_checkpoint_is_refused(spark, topic, to_topic, tmp_path):
    for first in (0, 100):
        stream(streaming(numbers(spark, first, first + 100), tmp_path / "in"), to_topic, tmp_path / "checkpoint")
    for batch in (1, 0):
        lose_commit(tmp_path / "checkpoint", batch)
        for name in (str(batch), f".{batch}.crc"):
            (tmp_path / "checkpoint" / "offsets" / name).unlink(missing_ok=batch == 0)
    frame = spark.readStream.schema("key string, value string").parquet(str(tmp_path / "in"))
    assert "is older than the last batch in the ledger" in fails(stream, frame, to_topic, tmp_path / "checkpoint")
    assert committed(topic) == expected(0, 200)


def test_a_query_that_wrote_at_least_once_before_is_refused_or_trusted(spark, topic, to_topic, tmp_path):
    before = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}
    stream(streaming(numbers(spark, 0, 100), tmp_path / "in"), before, tmp_path / "checkpoint")
    frame = streaming(numbers(spark, 100, 200), tmp_path / "in")
    assert "ledgerStart=trust-checkpoint:1." in fails(stream, frame, to_topic, tmp_path / "checkpoint")
    stream(frame, {**to_topic, "ledgerStart": "trust-checkpoint:1"}, tmp_path / "checkpoint")
    assert committed(topic) == expected(0, 200)


def test_another_guarantee_in_between_is_refused_not_written_twice(spark, topic, to_topic, tmp_path):
    """Exactly-once wrote batch 0, at-least-once 1 to 3, and Spark's own commit of 3 is lost."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    stream(streaming(numbers(spark, 0, 100), source), to_topic, checkpoint)
    before = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}
    for first in (100, 200, 300):
        frame = streaming(numbers(spark, first, first + 100), source)
        stream(frame, before, checkpoint)
    lose_commit(checkpoint, 3)
    text = fails(stream, frame, to_topic, checkpoint)
    assert "batch 0 of" in text
    assert "ledgerStart=trust-checkpoint:3." in text
    assert committed(topic) == expected(0, 400)
    trusting = {**to_topic, "ledgerStart": "trust-checkpoint:4"}
    lose_nothing = streaming(numbers(spark, 400, 500), source)
    assert "ledgerStart=trust-checkpoint:3." in fails(stream, lose_nothing, trusting, checkpoint)
    assert committed(topic) == expected(0, 400)


@pytest.mark.parametrize("given", [True, "True", " TRUE "], ids=["bool", "str", "by hand"])
def test_speculation_is_refused_before_anything_is_written(spark, topic, to_topic, given):
    """PySpark writes a bool in small letters; text reaches the tasks as it is."""
    SparkSession.builder.config("spark.speculation", given).getOrCreate()
    try:
        assert "Set it to false" in fails(save, numbers(spark, 0, 10), one_off(to_topic))
    finally:
        spark._jsparkSession.sessionState().conf().unsetConf("spark.speculation")
    assert committed(topic) == {}


def test_planning_says_what_is_wrong_in_its_own_words(spark, topic, to_topic):
    text = fails(save, numbers(spark, 0, 10), {**one_off(to_topic), "kafka.transaction.timeout.ms": 1_000_000})
    assert "PlanningError" in text
    assert "set it to 900000 or less" in text


def receipts(topic):
    """The receipts topic's JSON, as a read_committed reader sees it."""
    return sorted((json.loads(value) for value in committed(topic)), key=lambda each: each["partition"])


def test_a_query_with_a_name_is_listed_with_it(spark, topic, to_topic, tmp_path, capsys):
    frame = streaming(numbers(spark, 0, 10), tmp_path / "in")
    stream(frame, {**to_topic, "queryName": "orders"}, tmp_path / "checkpoint")
    assert main(["transactions", "list", "--bootstrap-server", topic.servers, "--prefix", topic.name]) == 0
    assert " (orders): batch 0, done, " in capsys.readouterr().out


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_receipts_tell_what_was_written_where(spark, topic, second_topic, to_topic, tmp_path, guarantee):
    wanted = {**to_topic, "receiptsTopic": second_topic.name}
    if guarantee == "at-least-once":
        wanted = {name: value for name, value in wanted.items() if name != "transactionalIdPrefix"}
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    stream(frame, {**wanted, "deliveryGuarantee": guarantee, "queryName": guarantee}, tmp_path / "checkpoint")
    told = receipts(second_topic)
    assert {each["query_name"] for each in told} == {guarantee}
    assert sum(each["count"] for each in told) == 100
    assert {each["topic"] for each in told} == {topic.name}
    assert {each["batch"] for each in told} == {0}
    for each in told:
        assert each["last_offset"] - each["first_offset"] + 1 == each["count"] > 0
        assert each["began_at"] <= each["ended_at"]


def test_receipts_of_rows_that_are_not_committed_are_not_either(spark, topic, second_topic, to_topic):
    frame = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) value", "if(id = 999, -1, 0) partition")
    fails(save, frame, {**one_off(to_topic), "receiptsTopic": second_topic.name})
    assert receipts(second_topic) == []
