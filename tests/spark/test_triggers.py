"""Triggers and stateful operators in front of the sink; docs/versions.md lists them."""

import inspect

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import GroupedData, Row
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from tests.spark.writes import expected, numbers, streaming
from tests.support.waiting import DEADLINE_S, eventually

pytestmark = pytest.mark.jvm


@pytest.fixture
def unlocated(to_topic):
    """A stream writer of ``frame`` into ``topic``, without a checkpoint."""
    return lambda frame: frame.writeStream.format("pykafka").options(**to_topic)


@pytest.fixture
def writer(unlocated, tmp_path):
    """A stream writer of ``frame`` into ``topic``."""
    return lambda frame: unlocated(frame).option("checkpointLocation", f"{tmp_path}/c")


@pytest.mark.parametrize("trigger", [{"once": True}, {"processingTime": "100 milliseconds"}], ids=str)
def test_each_row_is_written_with_this_trigger(spark, topic, writer, tmp_path, trigger):
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    query = writer(frame).trigger(**trigger).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert topic.values() == expected(0, 100)


class Counting(StatefulProcessor):
    """Counts the rows of each key over all micro-batches."""

    def init(self, handle):
        self._count = handle.getValueState("count", "count int")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 (Spark's names)
        yield Row(key=key[0], value=self._counted(sum(1 for _ in rows)))

    def close(self):
        pass

    def _counted(self, rows):
        count = (self._count.get()[0] if self._count.exists() else 0) + rows
        self._count.update((count,))
        return str(count)


class CountingInPandas(Counting):
    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 (Spark's names)
        yield pd.DataFrame({"key": key, "value": [self._counted(sum(len(each) for each in rows))]})


@pytest.fixture
def rocksdb(spark):
    """The only state store that ``transformWithState`` takes."""
    setting = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider")
    yield
    spark.conf.set(setting, before)


@pytest.mark.parametrize(
    ("method", "processor"),
    [
        ("transformWithState", Counting),
        pytest.param("transformWithStateInPandas", CountingInPandas, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("rocksdb")
def test_transform_with_state_writes_what_its_processor_returns(spark, topic, writer, tmp_path, method, processor):
    if not hasattr(GroupedData, method):
        pytest.skip("came with Spark 4.1")
    for rows in (3, 2):
        frame = streaming(spark.range(rows).selectExpr("'k' key"), tmp_path / "in")
        transformed = getattr(frame.groupBy("key"), method)
        counts = transformed(processor(), "key string, value string", "Append", "None")
        assert writer(counts).trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    assert topic.values() == {b"3": 1, b"5": 1}


def continuous_rows(spark):
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).option("numPartitions", 1).load()
    return rows.selectExpr("cast(value as string) value")


def test_incident_continuous_processing_committed_epochs_whose_rows_nobody_wrote(spark, topic, unlocated, tmp_path):
    """Spark dropped each row, and its tasks reported nothing. Here the sink is not told where the checkpoint is."""
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path))
    try:
        query = unlocated(continuous_rows(spark)).queryName("c").trigger(continuous="100 milliseconds").start()
    finally:
        spark.conf.unset(setting)
    try:
        eventually((tmp_path / "c/offsets/4").exists, "no epoch has ended")
    finally:
        query.stop()
    assert not [*(tmp_path / "c/commits").glob("[0-9]*")]
    assert topic.values() == {}


@pytest.mark.skipif(
    "realTime" not in inspect.signature(DataStreamWriter.trigger).parameters, reason="came with Spark 4.2"
)
def test_real_time_mode_refuses_every_python_sink(spark, writer):
    rows = spark.readStream.format("rate").load().selectExpr("cast(value as string) value")
    with pytest.raises(PySparkException, match=r"NOT_IN_ALLOWLIST.*PythonTable"):
        writer(rows).outputMode("update").trigger(realTime="5 minutes").start()
