"""A schema ``bytes`` at the top, with a registry: the bytes of confluent-kafka's serializer, which its readers take."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.client import ConfluentRegistry
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.options import SinkOptions
from tests.support.schema_registry_server import SchemaRegistryServer

DECIMAL = json.dumps({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})
LATEST = {"auto.register.schemas": False, "use.latest.version": True}
CONTEXT = SerializationContext("t", MessageField.KEY)


@pytest.fixture
def registry():
    with SchemaRegistryServer() as server:
        yield server


def keys(rows, url=None, **given):
    options = {"kafka.bootstrap.servers": "a:1", "keyFormat": "avro", **given}
    if url is not None:
        options["schema.registry.url"] = url
    formats = SinkOptions.parse(options).formats
    client = None if url is None else ConfluentRegistry(formats.registry, SystemClock())
    plan = plan_formats(formats, {Side.KEY: FrameColumn(rows.type, '"bytes"')}, "t", client)
    return TaskFormats(plan).encode(Side.KEY, rows, TopicColumn.of("t")).values.to_pylist()


@pytest.mark.parametrize("schema", ['"bytes"', '{"type": "bytes"}', '{"type": "bytes", "logicalType": "mine"}'])
def test_incident_a_binary_key_had_its_length_in_front_and_readers_took_it_for_a_part_of_the_key(registry, schema):
    rows = [b"key", b"x" * 100, None, b"\0\xff"]
    written = keys(pa.array(rows), registry.url, **({} if schema == '"bytes"' else {"keySchema": schema}))
    client = SchemaRegistryClient({"url": registry.url})
    serialize, deserialize = AvroSerializer(client, schema, conf=LATEST), AvroDeserializer(client)
    assert written == [None if row is None else serialize(row, CONTEXT) for row in rows]
    assert [deserialize(each, CONTEXT) for each in written] == rows


def test_the_registrys_own_schema_is_written_so_too_and_the_same_key_without_bytes_is_the_id_alone(registry):
    """Java's deserializer reads that as no bytes; confluent-kafka's refuses what is shorter than six bytes."""
    registry.add("t-key", '"bytes"')
    assert keys(pa.array([b"", b"k"]), registry.url, **{"use.latest.version": "true"}) == [
        b"\0\0\0\0\1", b"\0\0\0\0\1k",
    ]  # fmt: skip


def test_a_decimal_is_written_without_its_length(registry):
    rows = pa.array([Decimal("1.23"), None, Decimal("-400.00")], pa.decimal128(9, 2))
    written = keys(rows, registry.url, keySchema=DECIMAL)
    client = SchemaRegistryClient({"url": registry.url})
    deserialize = AvroDeserializer(client)
    assert [deserialize(each, CONTEXT) for each in written] == [b"{", None, (-40000).to_bytes(3, "big", signed=True)]
    assert written[0] == AvroSerializer(client, DECIMAL, conf=LATEST)(b"{", CONTEXT)


@pytest.mark.parametrize(
    ("schema", "row", "inner"),
    [
        ('["null", "bytes"]', b"k", b"\2\2k"),
        ('{"type": "record", "name": "R", "fields": [{"name": "b", "type": "bytes"}]}', {"b": b"k"}, b"\2k"),
        ('"string"', "k", b"\2k"),
    ],
)
def test_other_schemas_have_their_lengths(registry, schema, row, inner):
    written = keys(pa.array([row]), registry.url, keySchema=schema)
    assert written == [b"\0\0\0\0\1" + inner]
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry.url}), schema, conf=LATEST)
    assert written == [serialize(row, CONTEXT)]


def test_bare_avro_has_the_length():
    assert keys(pa.array([b"key"])) == [b"\6key"]
    assert keys(pa.array([Decimal("1.23")], pa.decimal128(9, 2)), keySchema=DECIMAL) == [b"\2{"]
