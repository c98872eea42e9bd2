"""Rows without keys of many small micro-batches: no partition gets far more of them than another."""

from __future__ import annotations

import pytest

from tests.support.waiting import until

MICRO_BATCHES = 400
ROWS = 1_000
TASKS = 10
DEADLINE_S = 500

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600)]


def test_unkeyed_rows_of_400_micro_batches_are_spread_evenly(spark, topic, tmp_path):
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=TASKS).load()
    query = (
        source.selectExpr("cast(value as string) value")
        .writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", topic.servers)
        .option("topic", topic.name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def progress():
        assert query.exception() is None
        return (query.lastProgress or {"batchId": -1})["batchId"]

    try:
        until(progress, lambda batch: batch >= MICRO_BATCHES - 1, "too few micro-batches", DEADLINE_S)
    finally:
        query.stop()
    ends = topic.ends()
    assert sum(ends) >= MICRO_BATCHES * ROWS
    assert all(0.2 <= end / sum(ends) <= 0.3 for end in ends), ends
