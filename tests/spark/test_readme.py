"""What README, the quickstart and the page on testing show to copy does what they say."""

import json
import re

import pytest

from tests.repository.files import ROOT
from tests.repository.python_blocks import python_blocks
from tests.support.waiting import eventually

README = (ROOT / "README.md").read_text()
TEN_LINES, PRINTED = re.search(r"```python\n([^`]*)```\n\n```\n([^`]*)```", README).groups()
BATCH, CONSUMER, STREAM, BATCH_ONCE, STREAM_ONCE = [
    block.text for block in python_blocks() if block.where.startswith("quickstart.md") and block.how == "spark"
]
EXAMPLES = [block.text for block in python_blocks() if block.how == "pytest"]

pytest_plugins = ["pytester"]


@pytest.fixture
def run(spark, topic, tmp_path):
    """Runs an example on the test's own Kafka, topic and consumer group, in the session of the tests."""

    def await_rows(query):
        before = len(topic.records())
        eventually(lambda: len(topic.records()) > before or not query.isActive, "the query writes nothing")
        assert query.isActive, query.exception()

    def run(example):
        places = {
            "localhost:9092": topic.servers,
            **dict.fromkeys(('"numbers"', '"payments"', '"clicks"', '"look"', '"nightly"'), f'"{topic.name}"'),
            **dict.fromkeys(("checkpoints/numbers", "checkpoints/clicks"), str(tmp_path / "checkpoint")),
            "query.awaitTermination(30)": "await_rows(query)",  # 30 s are few on a busy machine
        }
        for shown, here in places.items():
            example = example.replace(shown, here)
        names = {"spark": spark, "await_rows": await_rows}
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
    assert "  # seconds; without a number, until the query ends" in STREAM
    run(STREAM)
    assert {record.key for record in topic.records()} <= {str(digit).encode() for digit in range(10)}


def test_the_exactly_once_batch_of_the_quickstart_writes_each_row_once_in_two_runs(run, topic):
    run(BATCH_ONCE)
    run(BATCH_ONCE)
    assert sorted(int(record.key) for record in topic.records()) == list(range(1000))


def test_the_exactly_once_stream_of_the_quickstart_goes_on_where_it_was_stopped(run, topic):
    run(STREAM_ONCE)
    run(STREAM_ONCE)
    values = sorted(json.loads(record.value)["value"] for record in topic.records())
    assert values == list(range(len(values)))


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.timeout(600)
def test_the_examples_of_tests_need_only_the_plugin_s_fixtures(pytester):
    assert sum(block.count("def test_") for block in EXAMPLES) == 4
    pytester.makepyfile("\n".join(EXAMPLES))
    pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "spark_kafka_sink.testing.pytest_plugin"
    ).assert_outcomes(passed=4)
