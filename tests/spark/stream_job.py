"""A streaming query in a process of its own: ``python stream_job.py MASTER FOLDER``.

The first line of standard input: JSON of the sink's options. Writes each line of the files in FOLDER/in until standard
input ends. Exits with an error if the query fails.
"""

from __future__ import annotations

import json
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery


def main(master: str, folder: str) -> None:
    options = json.loads(sys.stdin.readline())
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.pollingDelay": "5ms",
    }
    spark = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    writer = spark.readStream.text(f"{folder}/in").writeStream.format("pykafka").options(**options)
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(processingTime="100 milliseconds")
    query = writer.start()
    threading.Thread(target=stop_at_the_end, args=[query], daemon=True).start()
    query.awaitTermination()
    spark.stop()


def stop_at_the_end(query: StreamingQuery) -> None:
    sys.stdin.read()
    query.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
