"""Exactly-once through Spark: queries and jobs that end well, and what each refuses."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from spark_kafka_sink.spark import activate_session, kafka_batches, write_kafka
from spark_kafka_sink.tools.cli.main import main
from tests.spark.writes import expected, fails, lose_commit, numbers, one_off, save, setting, stream, streaming
from tests.support.waiting import DEADLINE_S, eventually, holds_for

pytestmark = pytest.mark.jvm


@pytest.fixture
def to_topic(to_topic):
    return {**to_topic, "deliveryGuarantee": "exactly-once"}


def test_a_query_writes_each_row_once_over_restarts(spark, topic, to_topic, tmp_path):
    for first in (0, 300):
        frame = streaming(numbers(spark, first, first + 300), tmp_path / "in")
        stream(frame, to_topic, tmp_path / "checkpoint")
        assert topic.values() == expected(0, first + 300)


def test_a_micro_batch_whose_commit_spark_lost_is_not_written_again(spark, topic, to_topic, tmp_path):
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    stream(frame, to_topic, tmp_path / "checkpoint")
    lose_commit(tmp_path / "checkpoint", 0)
    assert stream(frame, to_topic, tmp_path / "checkpoint") == [0]
    assert topic.values() == expected(0, 100)


def test_incident_a_deleted_checkpoint_had_everything_written_again_under_the_same_prefix(
    spark, topic, to_topic, tmp_path
):
    named = {**to_topic, "transactionalIdPrefix": topic.name}
    stream(streaming(numbers(spark, 0, 100), tmp_path / "in"), named, tmp_path / "blue")
    text = fails(stream, streaming(numbers(spark, 100, 200), tmp_path / "later"), named, tmp_path / "green")
    ids = [json.loads((tmp_path / each / "metadata").read_text())["id"] for each in ("green", "blue")]
    assert re.search(rf"Query {ids[0]} is refused, because the name {topic.name} belongs to query {ids[1]}", text)
    assert topic.values() == expected(0, 100)
    replacing = {**named, "ledgerStart": re.search(r"ledgerStart=(replaces:[0-9a-f-]+)", text)[1]}
    for first in (200, 300):
        stream(streaming(numbers(spark, first, first + 100), tmp_path / "later"), replacing, tmp_path / "green")
    assert f"replaces:{ids[0]}" in fails(
        stream, streaming(numbers(spark, 400, 500), tmp_path / "in"), named, tmp_path / "blue"
    )
    assert topic.values() == expected(0, 400)


def beside_an_intruder(spark, options, folder, intrusions):
    """A query that is started again whenever it fails, while another query is started every ten seconds under its
    prefix. Only tasks know which query they are of. Returns how many of its micro-batches failed, and how many were
    committed."""
    failed, over = 0, False

    def start(name):
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = rows.selectExpr("cast(value as string) value").writeStream.format("pykafka").queryName(name)
        return writer.options(**options).start()

    def supervise():
        nonlocal failed
        while not over:
            query = start("owner")
            try:
                while not (query.awaitTermination(0.2) or over):
                    pass
                query.stop()
            except StreamingQueryException:
                failed += 1

    def commits():
        return max((int(file.name) for file in (folder / "owner" / "commits").glob("[0-9]*")), default=-1) + 1

    with (
        setting(spark, "spark.sql.streaming.checkpointLocation", str(folder)),
        ThreadPoolExecutor(1, initializer=activate_session, initargs=(spark,)) as pool,
    ):
        supervised = pool.submit(supervise)
        eventually(lambda: commits() or supervised.done())
        for _ in range(intrusions):
            before = commits()
            assert "is refused, because the name" in fails(start("intruder").awaitTermination)
            holds_for(lambda: True, 10)
            eventually(lambda before=before: commits() > before + 1)
        over = True
        supervised.result(DEADLINE_S)
    return failed, commits()


@pytest.mark.slow
def test_a_query_makes_progress_beside_another_one_that_is_started_again_and_again(spark, topic, to_topic, tmp_path):
    options = {**to_topic, "transactionalIdPrefix": topic.name}
    failed, committed = beside_an_intruder(spark, options, tmp_path, intrusions=3)
    assert failed <= 3 < committed
    assert set(topic.values().values()) == {1}


def test_two_batch_jobs_at_the_same_time_both_succeed(spark, topic, to_topic):
    def job(first):
        rows = [(str(number),) for number in range(first, first + 100)]
        frame = spark.createDataFrame(rows, "value string")  # which makes the session this thread's, too
        save(frame, one_off(to_topic))

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(job, first) for first in (0, 100)]:
            each.result(timeout=DEADLINE_S)
    assert topic.values() == expected(0, 200)


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
        assert f"has fenced {topic.name}-nightly-driver" in fails(first.result)
        (tmp_path / "second goes on").touch()
        second.result(timeout=DEADLINE_S)
    assert topic.values() == {b"0": 1, b"1": 1}


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
    assert topic.values() == expected(0, 100)
    run(**elsewhere, ledgerStart="trust-checkpoint:1")
    assert topic.values() == expected(0, 200)


def test_incident_a_foreach_batch_that_skips_empty_batches_was_not_told_what_to_change(
    spark, topic, to_topic, tmp_path
):
    """A first write after micro-batch 0 looks like a lost ledger; one without rows leaves the entry."""

    def run(app, skips, **options):
        def write(batch, number):
            rows = batch.where("cast(value as int) >= 100")
            if not (skips and rows.isEmpty()):
                save(rows, {**to_topic, "txnAppId": f"{topic.name}-{app}", "txnVersion": number, **options})

        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / app))
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)

    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    run("skips", skips=True)
    run("writes", skips=False)
    frame = streaming(numbers(spark, 100, 200), tmp_path / "in")
    assert "`if batch.isEmpty(): return`" in fails(run, "skips", skips=True)
    run("writes", skips=False)
    assert topic.values() == expected(100, 200)
    run("skips", skips=False, ledgerStart="trust-checkpoint:1")
    assert topic.values() == dict.fromkeys(expected(100, 200), 2)


@pytest.mark.parametrize("given", [True, "True", " TRUE "], ids=["bool", "str", "by hand"])
def test_speculation_is_refused_before_anything_is_written(spark, topic, to_topic, given):
    """PySpark writes a bool in small letters; text reaches the tasks as it is."""
    SparkSession.builder.config("spark.speculation", given).getOrCreate()
    try:
        assert "Set it to false" in fails(save, numbers(spark, 0, 10), one_off(to_topic))
    finally:
        spark._jsparkSession.sessionState().conf().unsetConf("spark.speculation")
    assert topic.values() == {}


def receipts(topic):
    """The receipts topic's JSON, as a read_committed reader sees it."""
    return sorted((json.loads(value) for value in topic.values()), key=lambda each: each["partition"])


def test_a_query_with_a_name_is_listed_with_it(spark, topic, to_topic, tmp_path, capsys):
    frame = streaming(numbers(spark, 0, 10), tmp_path / "in")
    stream(frame, {**to_topic, "queryName": "orders", "transactionalIdPrefix": topic.name}, tmp_path / "checkpoint")
    assert main(["transactions", "list", "--bootstrap-server", topic.servers, "--prefix", topic.name]) == 0
    assert " (orders): batch 0, done, " in capsys.readouterr().out


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_receipts_tell_what_was_written_where(spark, topic, second_topic, to_topic, tmp_path, guarantee):
    wanted = {**to_topic, "receiptsTopic": second_topic.name}
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


def test_a_failed_job_shows_neither_rows_nor_receipts(spark, topic, second_topic, to_topic):
    frame = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) value", "if(id = 999, -1, 0) partition")
    assert "Invalid partition: -1" in fails(save, frame, {**one_off(to_topic), "receiptsTopic": second_topic.name})
    assert topic.values() == {}
    assert receipts(second_topic) == []


def test_incident_a_query_stopped_in_mid_batch_held_up_its_readers(spark, topic, to_topic, tmp_path, capsys):
    """Its tasks had no chance to report, and readers waited for their transactions for 15 minutes."""

    def is_open():
        assert main(["transactions", "list", "--bootstrap-server", topic.servers, "--prefix", topic.name]) == 0
        return "1 transaction open" in capsys.readouterr().out

    frame = streaming(numbers(spark, 0, 10), tmp_path / "in")
    options = {**to_topic, "transactionalIdPrefix": topic.name}
    stream(frame, options, tmp_path / "checkpoint")
    # A row of 1 KB each 20 ms, in batches of ten rows, so that the first ones are in the topic long before the last.
    streaming(spark.range(10, 6_000).selectExpr("'' key", "id || repeat(' ', 1000) value"), tmp_path / "in")
    slow = frame.selectExpr("value || substr(reflect('java.lang.Thread', 'sleep', 20L), 5) value")
    with setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", 10):
        writer = slow.writeStream.format("pykafka").options(**options)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        eventually(is_open)
        query.stop()
    once = {name: options[name] for name in ("kafka.bootstrap.servers", "topic")}
    save(spark.range(4).selectExpr("'after' value", "cast(id as int) partition"), once)
    assert topic.values() == {**expected(0, 10), b"after": 4}  # one in each partition
    assert not is_open()
