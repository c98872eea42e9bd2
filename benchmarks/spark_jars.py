"""Spark's own Kafka sink: four jars from Maven Central, fetched once by the Ivy inside PySpark."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.maven import cache_folder

# Each without its dependencies: Spark has the rest.
SINK_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
FETCH_DEADLINE_S = 600


def sink_jars() -> list[Path]:
    """The jars to put into ``spark.jars``; fetches them (10 MB) the first time."""
    version = next(rev for _, name, rev in SINK_JARS if name.startswith("spark-sql-kafka"))
    folder = cache_folder() / f"spark-sql-kafka-{version}"
    wanted = [folder / f"{name}-{rev}.jar" for _, name, rev in SINK_JARS]
    if not all(jar.is_file() for jar in wanted):
        _fetch(folder)
    return wanted


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    modules = "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" transitive="false"/>' for org, name, rev in SINK_JARS
    )
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        ivy_file = Path(scratch, "ivy.xml")
        ivy_file.write_text(
            '<ivy-module version="2.0"><info organisation="spark-kafka-sink" module="benchmarks"/>'
            f"<dependencies>{modules}</dependencies></ivy-module>"
        )
        jars = Path(scratch, "jars")
        done = subprocess.run(
            [find_java(), "-cp", f"{Path(pyspark.__file__).parent}/jars/*", "org.apache.ivy.Main",
             "-ivy", ivy_file, "-cache", f"{scratch}/ivy", "-confs", "default", "-types", "jar", "bundle",
             "-retrieve", f"{jars}/[artifact]-[revision].[ext]"],
            capture_output=True, text=True, timeout=FETCH_DEADLINE_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"Spark's Kafka sink could not be fetched from Maven Central:\n{done.stdout[-3000:]}")
        shutil.rmtree(folder, ignore_errors=True)
        jars.rename(folder)
