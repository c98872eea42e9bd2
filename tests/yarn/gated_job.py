"""A job for ``spark-submit`` that stops in the middle: ``gated_job.py SERVERS TOPIC FOLDER batch|stream``.

It writes ROWS rows exactly once. One row, in the middle, creates ``FOLDER/reached`` and goes on when ``FOLDER/go`` is
there. A stream reads FILES files, one per micro-batch, and the row is in the third.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

ROWS = 1_000
FILES = 4
GATE = 600
_DEADLINE_S = 240.0


def gate(folder: str) -> Callable[[str], str]:
    """A function for a column of numbers as text, which waits at row GATE."""

    def wait(value: str) -> str:
        if value == str(GATE):
            Path(folder, "reached").touch()
            deadline = time.monotonic() + _DEADLINE_S
            while not Path(folder, "go").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no {folder}/go")
                time.sleep(0.05)
        return value

    return wait


def main(servers: str, topic: str, folder: str, way: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    waits = udf(gate(folder), "string")
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly-once"}
    if way == "batch":
        frame = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) value")
        # The second attempt of an application runs the job again: it must be known as the same one.
        options |= {"txnAppId": topic, "txnVersion": "1"}
        frame.select(waits("value").alias("value")).write.format("pykafka").options(**options).mode("append").save()
    else:
        source = Path(folder, "in")
        if not source.exists():
            parts = Path(folder, "parts")
            parts.mkdir()
            for part in range(FILES):
                numbers = range(part * ROWS // FILES, (part + 1) * ROWS // FILES)
                parts.joinpath(f"{part}.txt").write_text("".join(f"{number}\n" for number in numbers))
            parts.rename(source)
        frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source))
        writer = frame.select(waits("value").alias("value")).writeStream.format("pykafka").options(**options)
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
