"""Schemas named in headers (magic 1 and a GUID), read by confluent-kafka's deserializers from a scripted registry."""

import json
import uuid

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, dual_schema_id_deserializer
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import AvroSerializer, KafkaProducer, ProducerRecord, ProtobufSerializer, SyncProducer
from tests.schema_registry_server import SchemaRegistryServer
from tests.spark.topics import Topic
from tests.unit.encoding.protos import compiled, upb

KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "region", "type": "string"}]})
SHOP = """syntax = "proto3"; package shop; import "parts.proto";
message First { int32 a = 1; }
message Order {
  map<string, int64> counts = 1;
  message Unused { int32 a = 1; }
  message Line { int64 id = 1; optional string note = 2; parts.Part part = 3; }
}"""
PARTS = 'syntax = "proto3"; package parts; message Part { string name = 1; }'
LINES = [{"id": 1, "note": "ü", "part": {"name": "x"}}, {"id": 2}, {"id": -3, "note": ""}]
LINE = pa.struct([("id", pa.int64()), ("note", pa.string()), ("part", pa.struct([("name", pa.string())]))])
KEYS = [{"region": name} for name in ("eu-central", "us-east-1", "südost")]
"""In more than five bytes: AvroDeserializer refuses shorter ones, with headers too."""


@pytest.fixture
def registry():
    with SchemaRegistryServer() as server:
        yield server


@pytest.fixture
def topic(kafka_test_broker):
    kafka_test_broker.create_topic("t", 1)
    return Topic(kafka_test_broker.bootstrap_servers, "t")


def options(registry, topic):
    places = {f"{side}.schema.id.serializer": "header" for side in ("key", "value")}
    return {"bootstrap.servers": topic.servers, "schema.registry.url": registry.url, **places}


def read(registry, records, kind):
    """Keys and values, by ``__key_schema_id`` and ``__value_schema_id`` only: the bytes have no prefix."""
    client = SchemaRegistryClient({"url": registry.url})
    by_id = {"schema.id.deserializer": dual_schema_id_deserializer}
    key, value = AvroDeserializer(client, conf=by_id), ProtobufDeserializer(kind, by_id, client)
    return [
        (
            key(record.key, SerializationContext("t", MessageField.KEY, list(record.headers))),
            value(record.value, SerializationContext("t", MessageField.VALUE, list(record.headers))),
        )
        for record in records
    ]


@pytest.mark.parametrize("columns", [False, True])
def test_keys_and_nested_messages_are_read_by_the_guids_in_their_headers(registry, topic, columns):
    descriptor_set = compiled(shop=SHOP, parts=PARTS)
    serializer = ProtobufSerializer("shop.Order.Line", descriptor_set)
    with KafkaProducer(
        options(registry, topic), key_serializer=AvroSerializer(KEY), value_serializer=serializer
    ) as producer:
        if columns:
            headers = [[{"key": "h", "value": b"1"}]] * 3
            producer.send_columns("t", key=KEYS, value=pa.array(LINES, LINE), headers=headers)
        else:
            for key, line in zip(KEYS, LINES, strict=True):
                producer.send(ProducerRecord("t", line, key, headers=[("h", b"1")]))
    records = topic.records()
    kind = upb(descriptor_set, "shop.Order.Line")
    assert read(registry, records, kind) == list(zip(KEYS, [kind(**each) for each in LINES], strict=True))
    assert {record.headers[0] for record in records} == {("h", b"1")}
    assert {path for _, path, *_ in registry.asked if "/guids/" in path} == {
        f"/registry/schemas/guids/{guid(registry, subject)}" for subject in ("t-key", "t-value")
    }


def guid(registry, subject):
    return uuid.UUID(bytes=registry.guid(registry.subjects[subject][0]))


def test_the_synchronous_producer_names_schemas_in_headers_too(registry, topic):
    kind = upb(compiled(shop=SHOP, parts=PARTS), "shop.First")
    with SyncProducer(
        options(registry, topic), key_serializer=AvroSerializer(KEY), value_serializer=ProtobufSerializer()
    ) as producer:
        producer.send(ProducerRecord("t", kind(a=1), KEYS[0]))
    assert read(registry, topic.records(), kind) == [(KEYS[0], kind(a=1))]


def test_a_tombstone_names_the_schema_of_its_key_only(registry, topic):
    with KafkaProducer(
        options(registry, topic), key_serializer=AvroSerializer(KEY), value_serializer=AvroSerializer('"long"')
    ) as producer:
        producer.send(ProducerRecord("t", None, KEYS[0]))
        producer.send_columns("t", key=KEYS[:1], value=pa.array([None], pa.int64()))
    assert [[name for name, _ in record.headers] for record in topic.records()] == [["__key_schema_id"]] * 2
