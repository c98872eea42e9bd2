"""Which Avro schema reads which, against Avro's own ``SchemaCompatibility`` in Spark's jars, which Confluent's uses."""

import json

import pytest

from spark_kafka_sink.schemas.encoding.avro_schema import unreadable
from tests.unit.encoding.avro_pairs import PAIRS

pytestmark = pytest.mark.jvm


def test_java_says_the_same_of_every_pair_in_both_directions(spark):
    avro = spark.sparkContext._jvm.org.apache.avro

    def parse(text):
        return avro.Schema.Parser().parse(text)

    for first, second, _ in PAIRS:
        texts = json.dumps(first), json.dumps(second)
        for reader, writer in (texts, texts[::-1]):
            checked = avro.SchemaCompatibility.checkReaderWriterCompatibility(parse(reader), parse(writer))
            assert (checked.getType().toString() == "COMPATIBLE") == (not unreadable(reader, writer)), (reader, writer)
