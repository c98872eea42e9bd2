"""What README, the quickstart and the page on testing show to copy does what they say."""

import re
from textwrap import dedent

import pytest

from tests.repository.files import ROOT
from tests.repository.python_blocks import python_blocks
from tests.waiting import eventually

README = (ROOT / "README.md").read_text()
TEN_LINES, PRINTED = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL).groups()
BATCH, CONSUMER, STREAM = [
    block.text for block in python_blocks() if block.where.startswith("quickstart.md") and block.how == "spark"
]
EXAMPLES = [block.text for block in python_blocks() if block.how == "pytest"]

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
    """Runs an example on the test's own Kafka, topic and consumer group, in the session of the tests."""

    def run(example):
        places = {
            "localhost:9092": topic.servers,
            '"numbers"': f'"{topic.name}"',
            "checkpoints/numbers": str(tmp_path / "checkpoint"),
            '"look"': f'"{topic.name}"',
        }
        for shown, here in places.items():
            example = example.replace(shown, here)
        names = {"spark": spark}
        exec(example, names)
        return names

    return run


def test_readmes_lines_print_what_it_shows(spark, capsys):
    lines = [line for line in TEN_LINES.splitlines() if line]
    assert len(lines) <= 10
    exec(TEN_LINES, {})
    assert capsys.readouterr().out == PRINTED


def test_the_batch_of_the_quickstart_and_its_consumer(run, topic, capsys):
    run(BATCH)
    assert sorted(int(record.key) for record in topic.records()) == list(range(1000))
    assert topic.values()[b'{"id":7}'] == 1
    run(CONSUMER)["consumer"].close()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert all(re.fullmatch(r"""\d+ b'(\d+)' b'{"id":\1}'""", line) for line in printed)


def test_the_stream_of_the_quickstart(run, topic):
    query = run(STREAM)["query"]
    try:
        eventually(lambda: topic.records() or not query.isActive, "the query writes nothing")
        assert query.isActive, query.exception()
    finally:
        query.stop()
    assert {record.key for record in topic.records()} <= {str(digit).encode() for digit in range(10)}


@pytest.mark.jvm
def test_the_examples_of_tests_need_only_the_plugin_s_fixtures(pytester):
    assert sum(block.count("def test_") for block in EXAMPLES) == 3
    pytester.makepyfile("\n".join([dedent(A_JOB), *EXAMPLES]))
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=3)
