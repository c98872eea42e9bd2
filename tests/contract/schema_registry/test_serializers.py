"""Avro and Protobuf of ``KafkaProducer`` on a real Kafka and a real registry, read by confluent-kafka."""

import json

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink import AvroSerializer, KafkaProducer, ProducerRecord, ProtobufSerializer
from tests.spark.topics import Topic
from tests.unit.encoding.protos import compiled, upb

pytestmark = pytest.mark.jvm

SCHEMA = json.dumps({
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
})  # fmt: skip
ROWS = [{"id": number, "note": None if number % 2 else f"ü{number}"} for number in range(20)]
KIND = pa.struct([("id", pa.int64()), ("note", pa.string())])
PROTO = """syntax = "proto3"; package shop.serializers;
import "google/protobuf/timestamp.proto";
message Other { int32 a = 1; }
message Order { int64 id = 1; optional string note = 2; google.protobuf.Timestamp at = 3; }"""


def read(local_kafka, topic, deserialize):
    records = Topic(local_kafka.bootstrap_servers, topic).records()
    return [deserialize(record.value, SerializationContext(topic, MessageField.VALUE)) for record in records]


def write(local_kafka, local_schema_registry, topic, serializer, rows, column):
    local_kafka.create_topic(topic)
    options = {"bootstrap.servers": local_kafka.bootstrap_servers, "schema.registry.url": local_schema_registry.url}
    with KafkaProducer(options, value_serializer=serializer) as producer:
        for row in rows:
            producer.send(ProducerRecord(topic, row, partition=0))
        producer.flush()
        producer.send_columns(topic, value=column, partition=[0] * len(column))


def test_avro_of_records_and_columns_is_read_by_confluents_deserializer(local_kafka, local_schema_registry):
    write(local_kafka, local_schema_registry, "serializers-avro", AvroSerializer(SCHEMA), ROWS, pa.array(ROWS, KIND))
    client = SchemaRegistryClient({"url": local_schema_registry.url})
    assert read(local_kafka, "serializers-avro", AvroDeserializer(client)) == [*ROWS, *ROWS]
    assert client.get_versions("serializers-avro-value") == [1]


def test_protobuf_of_records_and_columns_is_read_by_confluents_deserializer(local_kafka, local_schema_registry):
    kind = upb(compiled(PROTO), "shop.serializers.Order")
    messages = [kind(**row) for row in ROWS]
    write(
        local_kafka, local_schema_registry, "serializers-protobuf", ProtobufSerializer(kind), messages,
        pa.array(ROWS, KIND),
    )  # fmt: skip
    client = SchemaRegistryClient({"url": local_schema_registry.url})
    # Without a registry: Apicurio has no format=serialized.
    deserializer = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    assert read(local_kafka, "serializers-protobuf", deserializer) == [*messages, *messages]
    registered = upb(
        compiled(client.get_latest_version("serializers-protobuf-value").schema.schema_str), kind.DESCRIPTOR.full_name
    )
    assert registered.FromString(messages[0].SerializeToString()).id == ROWS[0]["id"]
