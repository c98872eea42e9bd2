"""A client of a Spark Connect server that it starts: ``python connect_job.py SERVERS TOPIC ROWS FOLDER``.

A batch write of ROWS values; then a query whose foreachBatch writes ROWS more, exactly once, and whose micro-batch 0 is
run twice. FOLDER gets the query's checkpoint, and dead letters of two writes of each micro-batch. A row of a cloned
session. The same with ``write_kafka`` and ``kafka_batches``, and a call of ``write_kafka`` that is interrupted.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_kafka_sink.spark import kafka_batches, write_kafka
from tests.spark.writes import lose_commit

_NOT_STARTED = "Timed out while waiting for the Python worker to connect back"


def main(servers: str, topic: str, rows: str, folder: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    to_topic = {"kafka.bootstrap.servers": servers, "topic": topic}
    frame = spark.range(0, int(rows), 1, 4).selectExpr("cast(id as string) value")
    frame.write.format("pykafka").options(**to_topic).mode("append").save()

    once = {**to_topic, "deliveryGuarantee": "exactly-once"}
    source, checkpoint = f"{folder}/in", Path(folder, "checkpoint")
    frame.selectExpr("concat('stream ', value) value").coalesce(1).write.parquet(source)
    run(spark, source, checkpoint, {**once, "txnAppId": topic})
    lose_commit(checkpoint, 0)
    run(spark, source, checkpoint, {**once, "txnAppId": topic})
    try:
        run(spark, source, Path(folder, "other"), once)
    except PySparkException as error:
        sys.stdout.write(f"REFUSED: {error}\n")
    if hasattr(spark, "cloneSession"):  # since Spark 4.1
        clone = spark.cloneSession()
        clone.range(1).selectExpr("'of a clone' value").write.format("pykafka").options(**to_topic).mode(
            "append"
        ).save()
    by_functions(spark, source, checkpoint.with_name("of-functions"), {**once, "txnAppId": f"{topic}-functions"})
    spark.stop()


def by_functions(spark: SparkSession, source: str, checkpoint: Path, options: dict[str, str]) -> None:
    """``write_kafka``: 10 rows, twice; a call that is interrupted. A query with ``kafka_batches``, run twice."""
    numbered = {**options, "txnVersion": "1"}
    for _ in range(2):
        rows = spark.range(0, 10, 1, 2).selectExpr("concat('function ', id) value")
        sys.stdout.write(f"RESULT: {write_kafka(rows, numbered)}\n")
    slow = spark.range(0, 2, 1, 2).selectExpr("java_method('java.lang.Thread', 'sleep', 100000L) value")
    main = threading.get_ident()
    threading.Timer(5, signal.pthread_kill, (main, signal.SIGINT)).start()
    spark.addTag("of the caller")
    try:
        write_kafka(slow, {**numbered, "txnVersion": "2"})
    except KeyboardInterrupt as interrupt:
        sys.stdout.write(f"INTERRUPTED: {interrupt.__notes__} {spark.getTags()}\n")
    spark.removeTag("of the caller")
    queries = {**options, "txnAppId": f"{options['txnAppId']}-query"}
    for _ in range(2):
        frame = spark.readStream.schema("value string").parquet(source).selectExpr("concat('function ', value) value")
        writer = frame.writeStream.foreachBatch(kafka_batches(queries))
        query = started(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
        query.awaitTermination(120)
        if (error := query.exception()) is not None:
            raise error
        lose_commit(checkpoint, 0)


def run(spark: SparkSession, source: str, checkpoint: Path, options: dict[str, str]) -> None:
    """A query over what its source has, with each micro-batch's number as txnVersion if there is a txnAppId."""

    def write(batch: DataFrame, number: int) -> None:
        version = {"txnVersion": str(number)} if "txnAppId" in options else {}
        batch.write.format("pykafka").options(**options, **version).mode("append").save()

    writer = spark.readStream.schema("value string").parquet(source).writeStream.foreachBatch(write)
    query = started(writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
    query.awaitTermination(120)
    if (error := query.exception()) is not None:
        raise error


def started(writer: DataStreamWriter) -> StreamingQuery:
    """Spark gives the Python worker of a foreachBatch ten seconds to start, which a busy machine may not manage."""
    for _ in range(10):
        try:
            return writer.start()
        except PySparkException as error:
            if _NOT_STARTED not in str(error):
                raise
    return writer.start()


main(*sys.argv[1:])
