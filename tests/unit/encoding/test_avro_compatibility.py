"""What a schema reads of another one's data; tests/spark compares the same pairs with Java's verdicts."""

import json

import pytest

from spark_kafka_sink.schemas.encoding.avro_schema import unreadable
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError
from tests.unit.encoding.avro_pairs import PAIRS


@pytest.mark.parametrize(("reader", "writer", "faults"), PAIRS)
def test_what_cannot_be_read_is_named_with_its_path(reader, writer, faults):
    assert list(unreadable(json.dumps(reader), json.dumps(writer))) == faults


def test_a_schema_that_is_none_is_an_error():
    for pair in (('"int"', "3"), ("3", '"int"')):
        with pytest.raises(InvalidSchemaError, match="3 is not a type"):
            unreadable(*pair)
