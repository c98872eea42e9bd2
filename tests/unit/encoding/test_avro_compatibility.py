"""What a schema reads of another one's data, by fastavro; tests/spark compares the same pairs with Java's verdicts."""

import io
import json

import fastavro
import pytest
from fastavro.utils import generate_many

from spark_kafka_sink.schemas.encoding.avro_schema import unreadable
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError
from tests.unit.encoding.avro_pairs import PAIRS


@pytest.mark.parametrize(("reader", "writer", "faults"), PAIRS)
def test_what_cannot_be_read_is_named_with_its_path(reader, writer, faults):
    assert list(unreadable(json.dumps(reader), json.dumps(writer))) == faults


BYTES = ("string", "bytes")
"""Readable where the bytes are UTF-8."""


@pytest.mark.parametrize(("reader", "writer"), [pair[:2] for pair in PAIRS if not pair[2] and pair[:2] != BYTES])
def test_fastavro_reads_what_is_readable(reader, writer):
    parsed = [fastavro.parse_schema(json.loads(json.dumps(each))) for each in (reader, writer)]
    for row in generate_many(parsed[1], 20):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed[1], row)
        buffer.seek(0)
        fastavro.schemaless_reader(buffer, parsed[1], parsed[0])


def test_a_schema_that_is_none_is_an_error():
    for pair in (('"int"', "3"), ("3", '"int"')):
        with pytest.raises(InvalidSchemaError, match="3 is not a type"):
            unreadable(*pair)
