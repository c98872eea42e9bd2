"""A task's columns: one encoder for many topics, topics with schemas of their own, rows that cannot be encoded."""

from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.serde import SchemaId

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.schemas.encoding.encoder import UnencodableRowsError
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats, with_schema_headers
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaIdPlace, Side, confluent_name
from spark_kafka_sink.spark.row_reader import topic_column
from tests.unit.formats.fake_registry import FakeRegistry
from tests.unit.formats.test_planning import STRUCT, plan

LONG = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"]}]}'
INT = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
def registry(monkeypatch):
    """The registry of planning and of the worker."""
    registry = FakeRegistry()
    registry.serve_workers(monkeypatch)
    return registry


def encode(formats, numbers, topics):
    rows = pa.array([None if number is None else {"a": number} for number in numbers], STRUCT)
    return formats.encode(Side.VALUE, rows, topic_column(pa.array(list(topics)))).values.to_pylist()


def prefix(number):
    return b"\0" + number.to_bytes(4, "big")


def test_each_topic_has_its_id_and_the_registry_is_asked_once_per_worker(registry):
    registry.register("b-value", Schema("AVRO", '"string"'))
    registry.register("b-value", Schema("AVRO", '"bytes"'))
    formats = plan(registry, topic=None, valueSchema=LONG)
    assert encode(TaskFormats(formats), [1, None, 2], "aba") == [prefix(3) + b"\2\2", None, prefix(3) + b"\2\4"]
    del registry.requests[:]
    second = TaskFormats(formats)
    assert encode(second, [1, 2], "ab") == [prefix(3) + b"\2\2", prefix(3) + b"\2\4"]
    assert registry.requests == []
    assert second.ids == ((Side.VALUE, "a-value", 3), (Side.VALUE, "b-value", 3))


def test_topics_whose_latest_versions_differ_are_encoded_apart_and_put_back(registry):
    registry.register("a-value", Schema("AVRO", LONG))
    registry.register("b-value", Schema("AVRO", INT))
    formats = TaskFormats(plan(registry, topic=None, use_latest_version="true"))
    assert encode(formats, [1, 2, 3, 4, None], "abbab") == [
        prefix(1) + b"\2\2",
        prefix(2) + b"\4",
        prefix(2) + b"\6",
        prefix(1) + b"\2\x08",
        None,
    ]


def test_the_faulty_rows_of_every_encoder_are_told(registry):
    registry.register("a-value", Schema("AVRO", INT))
    registry.register("b-value", Schema("AVRO", INT.replace('"R"', '"S"')))
    formats = TaskFormats(plan(registry, topic=None, use_latest_version="true"))
    rows = pa.array([{"a": None}, {"a": None}, {"a": 3}, {"a": None}], STRUCT)
    with pytest.raises(UnencodableRowsError) as raised:
        formats.encode(Side.VALUE, rows, topic_column(pa.array(["b", "a", "b", "b"])))
    assert [fault.row for fault in raised.value.faults] == [0, 1, 3]


def test_a_topic_first_met_while_the_registry_is_down_fails_and_others_do_not(registry):
    formats = plan(registry, topic=None, valueSchema=LONG)
    encode(TaskFormats(formats), [1], "a")
    registry.down = True
    assert encode(TaskFormats(formats), [1], "a") == [prefix(1) + b"\2\2"]
    of_task = TaskFormats(formats)
    for _ in range(2):
        with pytest.raises(RegistryError, match="does not respond"):
            encode(of_task, [1], "b")
    registry.down = False
    assert encode(of_task, [1], "b") == [prefix(1) + b"\2\2"]


# The bytes that confluent-kafka's own serializers write, in front of values and in headers beside the rows' own.

GUID = "89791762-2336-4186-9674-299b90a802e2"
MESSAGES = [(), (0,), (1,), (2, 0, 1), (300,)]


@pytest.mark.parametrize("indexes", MESSAGES)
def test_an_id_stands_in_front_of_the_value_or_a_guid_in_a_header(indexes):
    referee = SchemaId("PROTOBUF" if indexes else "AVRO", 70_000, GUID, list(indexes) or None)
    found = RegisteredSchema("t-value", 1, 70_000, Schema("AVRO", ""), UUID(GUID).bytes)
    assert confluent_name(found, indexes, Side.VALUE, SchemaIdPlace.PREFIX) == (referee.id_to_bytes(), None)
    assert confluent_name(found, indexes, Side.VALUE, SchemaIdPlace.HEADER) == (b"", referee.guid_to_bytes())


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
