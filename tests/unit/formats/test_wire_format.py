"""The bytes that confluent-kafka's own serializers write, in front of values and in headers beside the rows' own."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId

from spark_kafka_sink.records.columns import bytes_column
from spark_kafka_sink.schemas.formats.plan import schema_name
from spark_kafka_sink.schemas.formats.task_formats import with_schema_headers
from spark_kafka_sink.schemas.registry.registry_options import SchemaIdPlace
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, Side

GUID = "89791762-2336-4186-9674-299b90a802e2"
MESSAGES = [(), (0,), (1,), (2, 0, 1), (300,)]


@pytest.mark.parametrize("indexes", MESSAGES)
def test_an_id_stands_in_front_of_the_value_or_a_guid_in_a_header(indexes):
    referee = SchemaId("PROTOBUF" if indexes else "AVRO", 70_000, GUID, list(indexes) or None)
    found = RegisteredSchema("t-value", 1, 70_000, Schema("AVRO", ""), UUID(GUID).bytes)
    assert schema_name(found, indexes, Side.VALUE, SchemaIdPlace.PREFIX) == (referee.id_to_bytes(), None)
    assert schema_name(found, indexes, Side.VALUE, SchemaIdPlace.HEADER) == (b"", referee.guid_to_bytes())


KEY, VALUE = "__key_schema_id", "__value_schema_id"


def read(array):
    return [[(entry["key"], entry["value"]) for entry in row] for row in array.to_pylist()]


def test_rows_without_headers_get_those_of_their_schemas():
    added = {KEY: bytes_column([b"k", None, None]), VALUE: bytes_column([b"v", b"w", None])}
    assert read(with_schema_headers(None, added, 3)) == [
        [(KEY.encode(), b"k"), (VALUE.encode(), b"v")],
        [(VALUE.encode(), b"w")],
        [],
    ]


def test_they_come_behind_the_headers_of_the_row():
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    own = [[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}, {"key": "c", "value": b""}], []]
    headers = pa.array([None, *own], kind).slice(1)
    added = {VALUE: bytes_column([b"v", b"w", None, b"x"])}
    assert read(with_schema_headers(headers, added, 4)) == [
        [(b"a", b"1"), (VALUE.encode(), b"v")],
        [(VALUE.encode(), b"w")],
        [(b"b", None), (b"c", b"")],
        [(VALUE.encode(), b"x")],
    ]


def test_a_map_of_headers_is_taken_too():
    headers = pa.array([[("a", "1")], []], pa.map_(pa.string(), pa.string()))
    added = {KEY: bytes_column([b"k", None])}
    assert read(with_schema_headers(headers, added, 2)) == [[(b"a", b"1"), (KEY.encode(), b"k")], []]
