"""A write without Spark's data source classes."""

import subprocess
import sys

import pytest

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.sink_write import check_reports
from tests.waiting import DEADLINE_S


def test_a_write_is_planned_and_run_where_spark_has_no_python_data_sources():
    code = """
import pickle, sys
sys.modules["pyspark.sql.datasource"] = None
import spark_kafka_sink.spark.exactly_once, spark_kafka_sink.spark.formats
import spark_kafka_sink.spark.receipts.receipts_path, spark_kafka_sink.spark.write
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import SinkWrite

options = SinkOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
write = SinkWrite(RowLayout(value=0), options)
write.begin()
message = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(write)).write(iter(()))))
assert message == KafkaCommitMessage()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


def test_a_commit_without_a_tasks_report_is_refused():
    with pytest.raises(KafkaError, match=r"^micro-batch 7: 1 of 2 tasks reported nothing: .*continuous"):
        check_reports([KafkaCommitMessage(), None], "micro-batch 7: ")


@pytest.mark.parametrize("messages", [[], [KafkaCommitMessage()]])
def test_a_task_without_rows_has_reported(messages):
    check_reports(messages)
