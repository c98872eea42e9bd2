"""Spark's own Avro functions: a jar from Maven Central, fetched once. Its newest release there is 4.1.1."""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.testing.maven import IvyModule, cache_folder, fetch, filling

_VERSION = "4.1.1"
# Without its dependencies: Spark has them.
_MODULE = f"""<ivy-module version="2.0">
  <info organisation="spark-kafka-sink" module="spark-avro"/>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-avro_2.13" rev="{_VERSION}" conf="default" transitive="false"/>
  </dependencies>
</ivy-module>
"""


def spark_avro_jar() -> Path:
    folder = cache_folder() / f"spark-avro-{_VERSION}"
    with filling(folder) as scratch:
        if scratch is not None:
            fetch(IvyModule(f"spark-avro {_VERSION}", _MODULE, ("jar",)), scratch).rename(folder)
    return folder / f"spark-avro_2.13-{_VERSION}.jar"
