"""What is seen while a task writes, in Spark's own worker logs."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyspark
import pytest

from spark_kafka_sink.testing import LocalKafka
from tests.spark.test_trouble import ROWS_OF_ARROW, await_rows, steadily
from tests.spark.topics import Topic
from tests.spark.writes import save, setting

pytestmark = pytest.mark.jvm

STOPPED_S = 18.0
"""The rows come so slowly that the first append after the stop is 4 s later, and 10 s after that it is told."""
ROWS = 15_000


@pytest.fixture
def worker_logs(spark):
    """Reads the lines of the sink as (level, text)."""
    if pyspark.__version__.startswith("4.0."):
        pytest.skip("Spark keeps the logs of its workers since 4.1; in 4.0 they go to stderr only")
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")

    def read():
        logs = spark.tvf.python_worker_logs().filter("logger like 'spark_kafka_sink%'")
        return [(row.level, row.msg) for row in logs.select("level", "msg").collect()]

    yield read
    spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")


@pytest.mark.slow
def test_a_stopped_broker_is_told_in_sparks_worker_logs_while_the_task_waits(spark, worker_logs, tmp_path):
    is_back = tmp_path / "is-back"

    with LocalKafka() as kafka, setting(spark, ROWS_OF_ARROW, 100), ThreadPoolExecutor(1) as background:
        topic = Topic(kafka.bootstrap_servers, "stopped")
        kafka.create_topic(topic.name)

        def stop_for_a_while():
            await_rows(topic, 100)
            kafka.pause(1)
            time.sleep(STOPPED_S)
            kafka.resume(1)
            is_back.touch()

        stopping = background.submit(stop_for_a_while)
        options = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name, "logLevel": "debug"}
        save(spark.range(ROWS).coalesce(1).select(steadily(is_back)("id").alias("value")), options)
        stopping.result()
        assert topic.count() == ROWS
    lines = worker_logs()
    stalls = [text for level, text in lines if level == "WARNING" and text.startswith("No acknowledgement for 1")]
    assert len(stalls) == 1
    assert f"of {topic.name}-0, is 1" in stalls[0]
    assert f"{topic.servers} (id: 1) has not responded to" in stalls[0]
    assert any(level == "DEBUG" for level, _ in lines), "logLevel reaches the workers"


def test_without_log_level_the_worker_logs_have_no_line_of_a_write_that_goes_well(spark, topic, worker_logs):
    before = Counter(worker_logs())
    options = {"kafka.bootstrap.servers": topic.servers, "topic": topic.name, "logLevel": "WARN"}
    save(spark.range(100).selectExpr("cast(id as string) value"), options)
    assert not Counter(worker_logs()) - before
