"""Protobuf from a registry that gives only .proto text: Apicurio ignores ``format=serialized``."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference as ConfluentReference
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.proto_text import compile_proto
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.client import SchemaRegistry
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.testing import LocalSchemaRegistry
from tests.unit.encoding.protos import compiled, upb

pytestmark = pytest.mark.jvm

MONEY = 'syntax = "proto3"; package common; message Money { int64 units = 1; }'
ORDER = """syntax = "proto3"; package shop;
import "money.proto"; import "google/protobuf/timestamp.proto";
message Header {}
message Order { string id = 1; common.Money price = 2; google.protobuf.Timestamp at = 3; }"""
KIND = pa.struct(
    [("id", pa.string()), ("price", pa.struct([("units", pa.int64())])), ("at", pa.timestamp("us", "UTC"))]
)
ROWS = pa.array([{"id": "ä", "price": {"units": -5}, "at": 1_500_000}, None], KIND)


def written(url: str, topic: str, rows: pa.Array = ROWS, **given: str) -> list[bytes | None]:
    """By the sink's planning and its tasks' encoder."""
    given = {name.replace("_", "."): value for name, value in given.items()}
    formats = SinkOptions.parse(
        {"kafka.bootstrap.servers": "a:1", "valueFormat": "protobuf", "schema.registry.url": url, **given}
    ).formats
    assert formats.registry is not None
    registry = SchemaRegistry(formats.registry, SystemClock())
    plan = plan_formats(formats, {Side.VALUE: FrameColumn(rows.type)}, topic, registry)
    values: list[bytes | None] = TaskFormats(plan).encode(Side.VALUE, rows, TopicColumn.of(topic)).values.to_pylist()
    return values


@pytest.mark.parametrize("registers", ["confluent-kafka", "the sink"])
def test_the_latest_version_and_an_id_are_written_and_read_by_confluent_kafka(
    local_schema_registry: LocalSchemaRegistry, registers, tmp_path
):
    url, topic = local_schema_registry.url, f"text-{registers.replace(' ', '-')}"
    referee = SchemaRegistryClient({"url": url})
    descriptor_set = compiled(order=ORDER, money=MONEY)
    if registers == "the sink":
        (tmp_path / "set").write_bytes(descriptor_set)
        written(url, topic, valueDescriptorFile=str(tmp_path / "set"), valueMessage="shop.Order")
    else:
        referee.register_schema("money", ConfluentSchema(MONEY, "PROTOBUF"))
        reference = ConfluentReference("money.proto", "money", 1)
        referee.register_schema(f"{topic}-value", ConfluentSchema(ORDER, "PROTOBUF", [reference]))
    schema_id = referee.get_latest_version(f"{topic}-value").schema_id
    # Without the registry, of which confluent-kafka reads no text.
    read = ProtobufDeserializer(upb(descriptor_set, "shop.Order"), {"use.deprecated.format": False})
    for option in ({"use.latest.version": "true"}, {"use.schema.id": str(schema_id)}):
        value, tombstone = written(url, topic, valueMessage="shop.Order", **option)
        assert tombstone is None
        assert value[1:5] == schema_id.to_bytes(4, "big")
        order = read(value, SerializationContext(topic, MessageField.VALUE))
        assert (order.id, order.price.units, order.at.seconds, order.at.nanos) == ("ä", -5, 1, 500_000_000)


PRICED = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
message Priced { confluent.type.Decimal price = 1 [(confluent.field_meta) = { tags: "PII" }]; }"""


def test_confluents_own_files_need_no_reference(local_schema_registry: LocalSchemaRegistry, tmp_path):
    referee = SchemaRegistryClient({"url": local_schema_registry.url})
    number = referee.register_schema("priced-value", ConfluentSchema(PRICED, "PROTOBUF"))
    kind = pa.struct([("price", pa.struct([("value", pa.binary()), ("scale", pa.int32())]))])
    url, topic = local_schema_registry.url, "priced"
    rows = pa.array([{"price": {"value": b"7", "scale": 2}}], kind)
    (value,) = written(url, topic, rows, use_latest_version="true")
    assert value == b"\0" + number.to_bytes(4, "big") + b"\0\x0a\5\x0a\x017\x18\2"
    # And registered: the same text, so no new version.
    (tmp_path / "set").write_bytes(compile_proto(PRICED, {}, "the schema"))
    written(url, topic, rows, valueDescriptorFile=str(tmp_path / "set"), valueMessage="Priced")
    assert referee.get_latest_version("priced-value").schema.references in (None, [])
