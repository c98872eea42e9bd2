"""The benchmark's sides that write Avro write the same records: their times compare."""

import pytest

from benchmarks.frames import COLUMN_COUNTS, frame
from benchmarks.spark_jars import avro_jar, sink_jars
from benchmarks.spark_sides import NEEDS_REGISTRY, WRITERS, Destination

pytestmark = pytest.mark.jvm

ROWS = 1000


@pytest.fixture
def jars(spark):
    for jar in (*sink_jars(), avro_jar()):
        spark.sql(f"ADD JAR {jar}")


@pytest.fixture
def rows(spark, jars):
    return frame(spark, "columns", ROWS, 2)


def written_by(writer, rows, topic, registry):
    """Keys and values, in order."""
    WRITERS[writer](rows, Destination(topic.servers, [topic.name], {}, registry_url=registry.url))
    return sorted((record.key, record.value) for record in topic.records())


@pytest.mark.parametrize("writer", sorted(NEEDS_REGISTRY - {"avro"}))
def test_every_side_writes_the_bytes_of_the_sink(rows, topic, second_topic, local_schema_registry, writer):
    ours = written_by("avro", rows, topic, local_schema_registry)
    assert len(ours) == ROWS
    assert written_by(writer, rows, second_topic, local_schema_registry) == ours


def test_rows_of_many_columns_have_the_same_bytes_on_both_sides(
    spark, jars, topic, second_topic, local_schema_registry
):
    rows = frame(spark, f"columns-{COLUMN_COUNTS[-1]}", 100, 2)
    ours, theirs = (
        written_by(writer, rows, to, local_schema_registry)
        for writer, to in (("avro", topic), ("to_avro", second_topic))
    )
    assert len(ours) == 100
    assert ours == theirs
