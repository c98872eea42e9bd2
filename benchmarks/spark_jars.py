"""What Spark has as jars of Maven Central, fetched once: its own Kafka sink, and its Avro functions."""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.testing.maven import IvyModule, cache_folder, fetch, filling

# Each without its dependencies: Spark has the rest.
SINK_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
AVRO_JAR = ("org.apache.spark", "spark-avro_2.13", "4.1.1")
"""The newest that Maven Central has."""

Jars = tuple[tuple[str, str, str], ...]


def sink_jars() -> list[Path]:
    """The jars to put into ``spark.jars``; fetches them (10 MB) the first time."""
    return _fetched("spark-sql-kafka-4.2.0", SINK_JARS)


def avro_jar() -> Path:
    (jar,) = _fetched("spark-avro-4.1.1", (AVRO_JAR,))
    return jar


def _fetched(name: str, jars: Jars) -> list[Path]:
    folder = cache_folder() / name
    with filling(folder) as scratch:
        if scratch is not None:
            modules = "".join(
                f'<dependency org="{org}" name="{jar}" rev="{rev}" conf="default" transitive="false"/>'
                for org, jar, rev in jars
            )
            module = (
                f'<ivy-module version="2.0"><info organisation="spark-kafka-sink" module="{name}"/>'
                f"<dependencies>{modules}</dependencies></ivy-module>"
            )
            fetch(IvyModule(name, module, ("jar", "bundle")), scratch).rename(folder)
    return [folder / f"{jar}-{rev}.jar" for _, jar, rev in jars]
