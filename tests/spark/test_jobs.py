"""The jobs of jobs/, through ``spark-submit``."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pyspark
import pytest

from spark_kafka_sink.tools.cli import job
from tests.support.child_processes import PYTHON_PATH, finished

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent


def spark_submit(script, *arguments):
    """Exit code and output; spark-submit sends what a Python driver says to standard output, all of it.

    Which Python to use is told by Spark's configuration alone, except to Spark 4.0: it keeps the format that the Python
    of the environment has found, whatever is registered.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"SPARK_HOME": str(SPARK_HOME), "PYTHONPATH": PYTHON_PATH}
    if pyspark.__version__.startswith("4.0."):
        environment["PYSPARK_PYTHON"] = sys.executable
    line = [SPARK_HOME / "bin" / "spark-submit", "--master", "local[2]"]
    line += ["--properties-file", ROOT / "conf/spark-defaults.conf", "--conf", "spark.ui.enabled=false"]
    line += ["--conf", f"spark.pyspark.python={sys.executable}", ROOT / "jobs" / script, *arguments]
    return finished(line, 200, env=environment)


@pytest.fixture
def orders(tmp_path):
    """A folder with a file of 100 orders, of which each tenth has no customer."""
    folder = tmp_path / "orders"
    folder.mkdir()
    rows = [{"id": n, "customer": f"c{n % 7}" if n % 10 else None} for n in range(100)]
    folder.joinpath("1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def producer_config(topic, tmp_path):
    """The sample, with the test's own Kafka in it."""
    sample = (ROOT / "conf/producer.properties").read_text()
    assert "bootstrap.servers=localhost:9092" in sample
    config = tmp_path / "producer.properties"
    config.write_text(sample.replace("localhost:9092", topic.servers))
    return config


EXPECTED = Counter((f"c{n % 7}".encode() if n % 10 else None, n) for n in range(100))


def keys_and_ids(topic):
    return Counter((record.key, json.loads(record.value)["id"]) for record in topic.records())


def test_batch_writes_what_a_source_holds(topic, orders, producer_config):
    code, output = spark_submit(
        "batch_to_kafka.py", "--source-format", "json", "--path", orders, "--schema", "id INT, customer STRING",
        "--key", "customer", "--value", "to_json(struct(*))", "--column", "headers=map('source', 'test')",
        "--column", "made=1700000000000 + id", "--sink-option", "timestampColumn=made",
        "--producer-config", producer_config, "--sink-option", f"topic={topic.name}",
        "--sink-option", "kafka.compression.type=zstd",
    )  # fmt: skip
    assert code == 0, output
    assert keys_and_ids(topic) == EXPECTED
    records = topic.records()
    assert {record.headers for record in records} == {(("source", b"test"),)}
    assert sorted(record.timestamp - 1_700_000_000_000 for record in records) == list(range(100))
    assert "INFO pykafka: 100 rows (" in output


@pytest.mark.slow
def test_stream_goes_on_where_it_was(topic, orders, producer_config, tmp_path):
    line = (
        "stream_to_kafka.py", "--source-format", "json", "--path", orders, "--schema", "id INT, customer STRING",
        "--key", "customer", "--value", "to_json(struct(*))", "--producer-config", producer_config,
        "--sink-option", f"topic={topic.name}", "--checkpoint", tmp_path / "checkpoint", "--trigger", "available-now",
    )  # fmt: skip
    code, output = spark_submit(*line)
    assert code == 0, output
    assert keys_and_ids(topic) == EXPECTED
    orders.joinpath("2.json").write_text('{"id": 100, "customer": "late"}\n')
    code, output = spark_submit(*line)
    assert code == 0, output
    assert keys_and_ids(topic) == EXPECTED + Counter([(b"late", 100)])


def test_a_mistake_is_one_plain_error():
    code, output = spark_submit(
        "batch_to_kafka.py", "--source-format", "text", "--path", ROOT / "README.md",
        "--sink-option", "topics=t", "--sink-option", "kafka.bootstrap.servers=localhost:1",
        "--sink-option", "kafka.acks=2",
    )  # fmt: skip
    assert code == 1, output
    lines = output[output.index("error: ") :].splitlines()
    assert [line for line in lines if " INFO " not in line] == [
        "error: - topics is not an option of pykafka; did you mean topic?",
        "- kafka.acks must be one of all, -1, 0, 1, but is '2'.",
        "- topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.",
    ]


def test_without_sql_the_columns_are_written_as_they_are(spark, tmp_path):
    (tmp_path / "rows.json").write_text('{"topic": "t", "value": "v", "partition": 3}')
    line = ["--source-format", "json", "--path", str(tmp_path / "rows.json"), "--schema", "value STRING, topic STRING"]
    frame = job.load(spark.read, job.parser("", "").parse_args(line))
    assert (frame.columns, frame.collect()) == (["value", "topic"], [("v", "t")])


def test_the_command_line_wins_over_the_file(tmp_path):
    (tmp_path / "producer.properties").write_text("acks=1\nlinger.ms=7")
    line = ["--source-format", "rate", "--producer-config", str(tmp_path / "producer.properties")]
    line += ["--sink-option", "kafka.acks=all", "--sink-option", "topic=a=b"]
    options = job.sink_options(job.parser("", "").parse_args(line))
    assert options == {"kafka.acks": "all", "kafka.linger.ms": "7", "topic": "a=b"}


def test_a_missing_file_and_a_wrong_pair_are_named(capsys):
    with pytest.raises(SystemExit, match="2"):
        job.parser("", "").parse_args(["--source-format", "rate", "--sink-option", "topic"])
    assert "'topic' is not of the form NAME=VALUE" in capsys.readouterr().err
    arguments = job.parser("", "").parse_args(["--source-format", "rate", "--producer-config", "nowhere.properties"])
    assert job.exit_code(lambda: job.sink_options(arguments)) == 1
    assert capsys.readouterr().err == "error: [Errno 2] No such file or directory: 'nowhere.properties'\n"
