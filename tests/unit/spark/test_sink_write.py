"""A write without Spark's data source classes."""

import pickle
import subprocess
import sys

import pytest

from spark_kafka_sink import __version__
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import (
    KafkaBatchWriter,
    KafkaStreamWriter,
    SinkWrite,
    check_reports,
)
from tests.support.waiting import DEADLINE_S


def test_a_write_is_planned_and_run_where_spark_has_no_python_data_sources():
    code = """
import pickle, sys
sys.modules["pyspark.sql.datasource"] = None
import spark_kafka_sink.spark.exactly_once, spark_kafka_sink.spark.formats
import spark_kafka_sink.spark.write
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import SinkWrite

options = SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t", "driverCheck": "false"})
write = SinkWrite(RowLayout(value=0), options)
write.begin()
message = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(write)).write(iter(()))))
assert message == KafkaCommitMessage()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


def test_the_commit_of_an_exactly_once_write_imports_neither_numpy_nor_arrow():
    """They take 0.2 s, and the process of the driver that commits a batch writes two records of the ledger."""
    code = """
import sys, pyspark.sql.datasource
of_spark = {*sys.modules}  # that of 4.0 imports numpy
import spark_kafka_sink.spark.exactly_once, spark_kafka_sink.spark.sink_write
assert not {"numpy", "pyarrow"} & {*sys.modules} - of_spark
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


@pytest.fixture
def write():
    return SinkWrite(RowLayout(value=0), SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t"}))


@pytest.mark.parametrize("release", ["0.2.0", "0.4.0"])
def test_a_worker_of_another_release_says_so_instead_of_failing_on_the_plan(write, release):
    """Incident: ``'WritePlan' object has no attribute …`` in a task of a cluster with mixed releases."""
    write.release = release
    with pytest.raises(ConfigError, match=f"driver runs spark-kafka-sink {release}, and this worker {__version__}: "):
        pickle.loads(pickle.dumps(write)).write(iter(()))


@pytest.mark.parametrize(
    ("name", "begins"),
    [({}, "micro-batch 7: 1 row"), ({"queryName": "shop\n"}, r"micro-batch 7 of query shop\n: 1 row")],
)
def test_the_line_of_a_micro_batch_has_the_name_of_its_query(name, begins, caplog):
    """Incident: the lines of two at-least-once queries could not be told apart."""
    options = SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t", **name})
    with caplog.at_level("INFO", "spark_kafka_sink"):
        KafkaStreamWriter(RowLayout(value=0), options).commit(
            [KafkaCommitMessage((PartitionWrite("t", 0, 1, 9, 0, 0),))], 7
        )
    assert caplog.messages[0].startswith(begins)


def test_incident_each_empty_micro_batch_had_a_line(caplog):
    options = SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
    with caplog.at_level("INFO", "spark_kafka_sink"):
        KafkaStreamWriter(RowLayout(value=0), options).commit([KafkaCommitMessage()], 7)
        assert not caplog.messages
        KafkaBatchWriter(RowLayout(value=0), options).commit([KafkaCommitMessage()])
    assert caplog.messages[0].startswith("0 rows")


def test_a_commit_without_a_tasks_report_is_refused():
    with pytest.raises(KafkaError, match=r"^micro-batch 7: 1 of 2 tasks reported nothing: .*continuous"):
        check_reports([KafkaCommitMessage(), None], "micro-batch 7: ")
