"""The writes of a run without Spark: which options they pass on."""

from unittest.mock import MagicMock

import pytest

from spark_kafka_sink.tools.certification import writes
from spark_kafka_sink.tools.certification.plan import AT_LEAST_ONCE, BATCH, EXACTLY_ONCE, STREAM, Kind, Plan
from spark_kafka_sink.tools.certification.writes import Write


@pytest.fixture
def given(monkeypatch):
    """The options that write_kafka and kafka_batches get, as on Spark 3.5, which has no Python data sources."""
    given = []
    monkeypatch.setattr(writes, "has_format", lambda: False)
    monkeypatch.setattr(writes, "write_kafka", lambda frame, options: given.append(options))
    monkeypatch.setattr(writes, "kafka_batches", given.append)
    return given


def plan():
    return Plan.of({"kafka.bootstrap.servers": "kafka1:9092"}, 10, is_connect=False)


def test_on_spark_3_5_batch_and_query_had_the_same_txn_app_id(given):
    """The ledger then takes the query for a repeated job that writes to another topic, and refuses it."""
    made = plan()
    for way in (BATCH, STREAM):
        Write(MagicMock(), made, Kind(EXACTLY_ONCE, way)).run()
    batch, first, second = given
    assert first == second
    assert batch["txnAppId"] != first["txnAppId"]
    assert "txnVersion" in batch
    assert "txnVersion" not in first, "kafka_batches numbers the batches"


def test_on_spark_3_5_a_query_at_least_once_has_no_txn_app_id(given):
    Write(MagicMock(), plan(), Kind(AT_LEAST_ONCE, STREAM)).run()
    assert all("txnAppId" not in each for each in given)


def test_a_query_that_is_stopped_ends():
    query = MagicMock()
    query.awaitTermination.return_value = False
    spark = MagicMock()
    started = spark.readStream.format.return_value.option.return_value.load.return_value.selectExpr.return_value
    for name in ("format", "options", "foreachBatch", "option", "trigger"):
        getattr(started.writeStream, name).return_value = started.writeStream
    started.writeStream.start.return_value = query
    write = Write(spark, plan(), Kind(AT_LEAST_ONCE, STREAM))
    write.stop()
    with pytest.raises(writes.KafkaError, match="The query was stopped"):
        write._stream()
    query.stop.assert_called_once_with()
