"""What the README shows to copy does what it says."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from tests.waiting import eventually

README = (Path(__file__).parents[2] / "README.md").read_text()
BATCH, STREAM, *OTHERS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)

pytest_plugins = ["pytester"]

A_JOB = """
    from spark_kafka_sink.testing import Listener, LocalKafka

    def run_my_job(spark, kafka):
        options = {"kafka.bootstrap.servers": kafka} if isinstance(kafka, str) else kafka
        rows = spark.range(3).selectExpr("cast(id AS STRING) AS value")
        rows.write.format("pykafka").options(**options).option("topic", "orders").mode("append").save()
"""


@pytest.fixture
def run(spark, topic, tmp_path):
    """Runs an example on the test's own Kafka and topic."""

    def run(example):
        places = {
            "localhost:9092": topic.servers,
            '"numbers"': f'"{topic.name}"',
            "checkpoints/numbers": str(tmp_path / "checkpoint"),
        }
        for shown, here in places.items():
            example = example.replace(shown, here)
        names = {"spark": spark}
        exec(example, names)
        return names

    return run


def test_the_batch_example(run, topic):
    run(BATCH)
    assert sorted(int(record.key) for record in topic.records()) == list(range(1000))
    assert topic.values()[b'{"id":7}'] == 1


def test_the_streaming_example(run, topic):
    query = run(STREAM)["query"]
    try:
        eventually(lambda: topic.records() or not query.isActive, "the query writes nothing")
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert {record.key for record in topic.records()} <= {str(digit).encode() for digit in range(10)}


@pytest.mark.jvm
def test_the_examples_of_tests_need_only_the_plugin_s_fixtures(pytester):
    examples = [block for block in OTHERS if "def test_" in block]
    assert sum(block.count("def test_") for block in examples) == 3
    pytester.makepyfile("\n".join([dedent(A_JOB), *examples]))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
