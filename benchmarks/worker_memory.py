"""The peak memory of a Python worker by the size of the values, with the Spark that this Python has.

Run it with each Spark: ``.cache/spark-4.0/bin/python -m benchmarks.worker_memory``. It adds a column to
``worker_memory.json``; ``python -m benchmarks --pages`` then writes the table of docs/performance.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.testing.java import java_environment
from spark_kafka_sink.testing.local_kafka import LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIGURES = Path(__file__).with_suffix(".json")
_ROOT = Path(__file__).parents[1]

SIZES = {"100 B": (100, 4_000_000), "10 KB": (10_000, 100_000), "100 KB": (100_000, 25_000), "1 MB": (1_000_000, 1_000)}
"""Bytes of a value, and rows: with 100 KB more than two batches of 10,000."""

SETTINGS = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch")


def main() -> int:
    import pyspark

    os.environ.update(java_environment())
    os.environ["PYTHONPATH"] = str(_ROOT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    with LocalKafka(properties={"log.segment.delete.delay.ms": "0"}) as kafka:
        kafka.create_topic("values", 4, {"retention.bytes": str(64 << 20), "max.message.bytes": "2000000"})
        column = {name: _measure(kafka.bootstrap_servers, *shape) for name, shape in SIZES.items()}
    figures[pyspark.__version__] = {**_settings(), **column}
    FIGURES.write_text(json.dumps(dict(sorted(figures.items())), indent=1) + "\n")
    print(pyspark.__version__, figures[pyspark.__version__])
    return 0


def _measure(broker: str, size: int, rows: int) -> int:
    """MiB of the only worker of a new session, at its peak."""
    spark = _session()
    try:
        value = f"cast(repeat(chr(65 + id % 26), {size}) as binary) value"
        values = spark.range(rows, numPartitions=1).selectExpr(value)
        options = {"kafka.bootstrap.servers": broker, "topic": "values", "kafka.max.request.size": "2000000"}
        if hasattr(spark, "dataSource"):
            values.write.format("pykafka").mode("append").options(**options).save()
        else:
            from spark_kafka_sink.spark import write_kafka

            write_kafka(values, options)
        return round(max(_worker_peaks_mib()))
    finally:
        spark.stop()


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.memory", "4g").config("spark.log.level", "ERROR").getOrCreate()


def _settings() -> dict[str, str]:
    spark = _session()
    try:
        return {name: _setting(spark, name) for name in SETTINGS}
    finally:
        spark.stop()


def _setting(spark: SparkSession, name: str) -> str:
    """What the setting is when nobody sets it; "none" where this Spark does not have it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        value = str(spark.conf.get(name))
    except (PySparkException, Py4JError):
        return "none"
    return f"{int(value[:-1]) >> 20} MiB" if value.endswith("b") else value


def _worker_peaks_mib() -> Iterator[float]:
    """Of each process that a ``pyspark.daemon`` has forked (Linux)."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_bytes()
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            parent = Path("/proc", fields["PPid"].strip(), "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if b"pyspark.daemon" in command and b"pyspark.daemon" in parent:
            yield int(fields["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    sys.exit(main())
