"""Writes to ``format("pykafka")``, batch and streaming, that end well or with the text a user would read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_DEADLINE_S = 300


@contextmanager
def setting(spark: SparkSession, name: str, value: object) -> Iterator[None]:
    """A session setting for the time of the block."""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def one_off(options: Mapping[str, object]) -> dict[str, object]:
    """The options of a query for a batch job, whose txnAppId no other write has."""
    own = {name: value for name, value in options.items() if name != "transactionalIdPrefix"}
    exactly_once = options.get("deliveryGuarantee") == "exactly-once"
    return {**own, "txnAppId": uuid4().hex, "txnVersion": 0} if exactly_once else own


def save(frame: DataFrame, options: Mapping[str, object], mode: str = "append") -> None:
    """A batch job."""
    frame.write.format("pykafka").options(**options).mode(mode).save()


def stream(
    frame: DataFrame, options: Mapping[str, object], checkpoint: object, output_mode: str = "append"
) -> list[int]:
    """A streaming query over what its source has; the numbers of the micro-batches it ran."""
    writer = frame.writeStream.format("pykafka").options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.outputMode(output_mode).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(_DEADLINE_S), "the query is still running"
        return [progress.batchId for progress in query.recentProgress if progress.numInputRows]
    finally:
        query.stop()


def lose_commit(checkpoint: Path, batch: int) -> None:
    """As if the driver had died before Spark wrote its own commit file."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink()


def streaming(frame: DataFrame, folder: object) -> DataFrame:
    """A streaming frame with the rows of ``frame``, through files in ``folder``."""
    frame.coalesce(1).write.mode("append").parquet(str(folder))
    return frame.sparkSession.readStream.schema(frame.schema).parquet(str(folder))


def fails(run, *arguments, **named) -> str:
    """The text of the error that Spark raises."""
    with pytest.raises(PySparkException) as raised:
        run(*arguments, **named)
    return str(raised.value)


def one_row(spark: SparkSession, *columns: str) -> DataFrame:
    """A frame of one row in one task, its columns given in SQL."""
    return spark.range(1).coalesce(1).selectExpr(*columns)


def numbers(spark: SparkSession, first: int, end: int) -> DataFrame:
    return spark.range(first, end).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")


def expected(first: int, end: int) -> dict[bytes, int]:
    """The values of such rows, each once."""
    return {b"%d" % number: 1 for number in range(first, end)}
