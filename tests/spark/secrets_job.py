"""Writes that succeed and that fail, in a process of its own: ``python secrets_job.py MASTER FOLDER [NAME=VALUE …]``.

Standard input: JSON of the writes' options by their names, as ``test_secrets.py`` has them. MASTER ``connect`` is a
client of a Spark Connect server that it starts. What the writes leave behind is in FOLDER.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_kafka_sink.spark.options import SinkOptions
from tests.spark.writes import save, stream, streaming

Writes = Mapping[str, Mapping[str, str]]
_EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once"}


def main(master: str, folder: Path, *settings: str) -> None:
    writes: Writes = json.load(sys.stdin)
    builder = SparkSession.builder.remote("local[2]") if master == "connect" else SparkSession.builder.master(master)
    for name, _, value in (setting.partition("=") for setting in settings):
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    good = [name for name in writes if name.startswith("good")]
    for name in writes:
        (succeed if name in good else fail)(spark, name, writes[name])
    receipts = {"receiptsTopic": "receipts"}
    once = {**writes[good[0]], **_EXACTLY_ONCE, **receipts}
    succeed(spark, "batch", {**once, "txnAppId": "app", "txnVersion": "1"})
    frame = streaming(spark.range(5).selectExpr("cast(id as string) value"), folder / "in")
    assert stream(frame, once, folder / "checkpoint") == [0]
    sys.stdout.write("DONE: stream\n")
    explained(frame, once, folder)
    if master != "connect":
        pages(spark, folder)
    spark.stop()


def succeed(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    save(spark.range(0, 10, 1, 2).selectExpr("cast(id as string) value"), options)
    sys.stdout.write(f"DONE: {name}\n")


def fail(spark: SparkSession, name: str, options: Mapping[str, str]) -> None:
    """Prints the whole error, as a notebook or a log has it."""
    try:
        succeed(spark, name, options)
    except PySparkException:
        sys.stdout.write(f"FAILED: {name}\n")
        traceback.print_exc()
    with suppress(Exception):
        parsed = SinkOptions.parse(options)
        sys.stdout.write(f"{parsed!r} {parsed} {parsed.producer.by_name()}\n")


def explained(frame, options: Mapping[str, str], folder: Path) -> None:
    """The plan of a running query."""
    writer = frame.writeStream.format("pykafka").options(**options).option("checkpointLocation", str(folder / "other"))
    query = writer.option("transactionalIdPrefix", "explained").start()
    try:
        query.processAllAvailable()
        query.explain(extended=True)
    finally:
        query.stop()


def pages(spark: SparkSession, folder: Path) -> None:
    """What Spark's UI shows and its REST interface returns."""
    url = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    rest = f"api/v1/applications/{application}"
    for number, path in enumerate(("environment/", "SQL/", f"{rest}/environment", f"{rest}/sql?details=true")):
        (folder / f"page-{number}").write_bytes(urlopen(f"{url}/{path}", timeout=30).read())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
