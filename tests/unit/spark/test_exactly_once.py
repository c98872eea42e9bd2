"""What planning an exactly-once batch write tells the driver's log."""

import logging
import pickle

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.exactly_once.session import close_sessions
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.writers import KafkaBatchWriter
from spark_kafka_sink.testing import TestBroker

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def planned(caplog):
    """Plans a batch write with these options, as Spark does; the writer and what the log has of it."""
    with TestBroker() as broker:

        def plan(**options):
            caplog.clear()
            given = {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "topic": "t",
                "deliveryguarantee": "exactly-once",
            }
            parsed = SinkOptions.parse({**given, **options})
            writer = KafkaBatchWriter(RowLayout.of(SCHEMA, "t", None), parsed)
            with caplog.at_level(logging.INFO, "spark_kafka_sink"):
                pickle.dumps(writer)
                pickle.dumps(writer)
            return writer, [line for line in caplog.messages if "exactly once" in line]

        yield plan
    close_sessions()


def test_a_plain_job_tells_its_name_once(planned):
    writer, lines = planned(neverrepeated="true", transactionalidprefix="mine", ledgertopic="mine-log")
    name = writer.plan.name
    assert name.startswith("mine-")
    (line,) = lines
    assert line.startswith(f"batch job {name} writes exactly once.")
    servers = ",".join(f"{host}:{port}" for host, port in writer.options.producer.bootstrap_servers)
    assert line == (
        f"batch job {name} writes exactly once. If its driver dies, no later run ends its open transactions: "
        "`spark-kafka-sink "
        f"transactions list --bootstrap-server {servers} --prefix {name} --ledger-topic mine-log` shows it"
    )


def test_a_job_with_a_version_need_not_tell_its_name(planned):
    writer, lines = planned(txnappid="nightly", txnversion="3")
    assert writer.plan.name == "txn-nightly"
    assert lines == []
