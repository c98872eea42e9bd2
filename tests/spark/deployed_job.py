"""A job for ``spark-submit`` or a Spark Connect client: ``python deployed_job.py SERVERS TOPIC FOLDER [--register]``.

Batch and stream, with each guarantee: each of the four writes ROWS values, its name and a number. ``--register``: the
program registers the format itself. FOLDER is for checkpoints and the stream's source, on every machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 1_000
GUARANTEES = ("at-least-once", "exactly-once")
EVERY_ROW = {
    f"{way} {how} {row}".encode(): 1 for way in ("batch", "stream") for how in GUARANTEES for row in range(ROWS)
}
"""How often each value is in the topic afterwards."""


def main(servers: str, topic: str, folder: str, *more: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    if "--register" in more:
        from spark_kafka_sink.spark import register_format

        register_format(spark)
    for guarantee in GUARANTEES:
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": guarantee}
        batch = spark.range(0, ROWS, 1, 4).selectExpr(f"concat('batch {guarantee} ', id) value")
        job = {**options, "txnAppId": topic, "txnVersion": 0} if guarantee == "exactly-once" else options
        batch.write.format("pykafka").options(**job).mode("append").save()

        source = Path(folder, guarantee, "in")
        source.mkdir(parents=True)
        source.joinpath("1").write_text("".join(f"stream {guarantee} {number}\n" for number in range(ROWS)))
        stream = spark.readStream.text(str(source)).writeStream.format("pykafka").options(**options)
        stream = stream.option("checkpointLocation", f"{folder}/{guarantee}/checkpoint").trigger(availableNow=True)
        stream.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
