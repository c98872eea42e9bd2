"""The client against a real registry and the one in process, with Confluent's own client as the referee. Among them
Protobuf from a registry that gives only .proto text: Apicurio ignores ``format=serialized``."""

import itertools
import json

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaReference as ConfluentReference
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.proto_text import compile_proto
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.client import ConfluentRegistry
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference, Side
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.testing import LocalSchemaRegistry
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.unit.encoding.protos import compiled, upb

_numbers = itertools.count()
PROTO = 'syntax = "proto3"; package common; message Money { int64 units = 1; }'


def avro(*fields):
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in fields]}
    return Schema("AVRO", json.dumps(record))


def client_of(url, **options):
    faults: list[str] = []
    parsed = ConfluentOptions.parse({"schema.registry.url": url, **options}, faults)
    assert parsed is not None, faults
    return ConfluentRegistry(parsed, SystemClock())


@pytest.fixture
def subject():
    return f"topic-{next(_numbers)}-value"


@pytest.fixture(params=["in process", pytest.param("real", marks=pytest.mark.jvm)])
def url(request):
    if request.param == "real":
        yield request.getfixturevalue("local_schema_registry").url
    else:
        with SchemaRegistryServer() as server:
            yield server.url


on_a_real_one = pytest.mark.parametrize("url", [pytest.param("real", marks=pytest.mark.jvm)], indirect=True)


@pytest.fixture
def client(url):
    return client_of(url)


@pytest.fixture
def referee(url):
    return SchemaRegistryClient({"url": url})


def test_what_is_registered_here_is_what_confluents_client_sees(client, referee, subject):
    ours = [client.register(subject, schema) for schema in (avro("a"), avro("a", "b"))]
    latest = referee.get_latest_version(subject)
    assert (latest.schema_id, latest.version) == (ours[1].id, ours[1].version) == (ours[1].id, 2)
    for registered in ours:
        assert referee.get_schema(registered.id).schema_str == registered.schema.text
        found = referee.lookup_schema(subject, ConfluentSchema(registered.schema.text, "AVRO"))
        assert (found.schema_id, found.version) == (registered.id, registered.version)


@on_a_real_one
def test_what_confluents_client_registers_is_what_is_found_here(client, referee, subject):
    ids = [referee.register_schema(subject, ConfluentSchema(avro(*fields).text, "AVRO")) for fields in ("a", "ab")]
    assert client.latest(subject) == RegisteredSchema(subject, 2, ids[1], avro("a", "b"))
    assert client.lookup(subject, avro("a"))[:3] == (subject, 1, ids[0])
    assert client.by_id(ids[0], subject) == RegisteredSchema(subject, None, ids[0], avro("a"))
    assert client.register(subject, avro("a"))[:3] == (subject, 1, ids[0])


@on_a_real_one
def test_protobuf_with_imports_both_ways(client, referee, subject):
    common = client.register(f"{subject}-common", Schema("PROTOBUF", PROTO))
    text = 'syntax = "proto3"; import "common.proto"; message Price { common.Money money = 1; }'
    reference = SchemaReference("common.proto", common.subject, common.version)
    ours = client.register(subject, Schema("PROTOBUF", text, (reference,)))
    theirs = referee.get_latest_version(subject)
    assert (theirs.schema_id, theirs.schema.schema_str, theirs.schema.schema_type) == (ours.id, text, "PROTOBUF")
    assert theirs.schema.references == [ConfluentReference("common.proto", common.subject, 1)]
    read = client.latest(subject, serialized=True)
    assert read.schema == ours.schema
    assert client.imports(read.schema) == {"common.proto": Schema("PROTOBUF", PROTO)}
    other = referee.register_schema(
        f"{subject}-2", ConfluentSchema(text.replace("Price", "Cost"), "PROTOBUF", theirs.schema.references)
    )
    assert client.latest(f"{subject}-2")[:3] == (f"{subject}-2", 1, other)


def test_an_incompatible_schema_has_the_registrys_message_and_a_compatible_one_is_taken(local_schema_registry, subject):
    url = local_schema_registry.url
    client, referee = client_of(url), SchemaRegistryClient({"url": url})
    client.register(subject, avro("a"))
    referee.set_compatibility(subject, level="BACKWARD")
    with pytest.raises(RegistryError, match=r"HTTP status 409: .*[Ii]ncompatible.*change the schema") as raised:
        client.register(subject, avro("a", "b"))
    assert raised.value.status == 409
    added = {"name": "b", "type": "int", "default": 1}
    record = json.loads(avro("a").text)
    record["fields"].append(added)
    assert client.register(subject, Schema("AVRO", json.dumps(record))).version == 2


def test_missing_subjects_schemas_and_ids_say_what_to_do(client, subject):
    with pytest.raises(RegistryError, match=r"error code 40401.*leave use\.latest\.version out") as raised:
        client.latest(subject)
    assert raised.value.status == 404
    with pytest.raises(RegistryError, match=r"error code 40401.*set auto\.register\.schemas=true"):
        client.lookup(subject, avro("a"))
    client.register(subject, avro("a"))
    with pytest.raises(RegistryError, match=r"error code 40403.*set auto\.register\.schemas=true"):
        client.lookup(subject, avro("b"))
    with pytest.raises(RegistryError, match=r"error code 40403.*must be the id of a schema in this registry"):
        client.by_id(99_999, subject)


@on_a_real_one
def test_a_text_that_is_no_schema_has_the_registrys_status(client, subject):
    with pytest.raises(RegistryError, match=r"HTTP status 422"):
        client.register(subject, Schema("AVRO", '{"type": "record"}'))


def test_the_address_without_the_apis_path_is_named(local_schema_registry, subject):
    bare = local_schema_registry.url.removesuffix("/apis/ccompat/v7")
    with pytest.raises(RegistryError, match=r"is this schema\.registry\.url complete, with its path\?"):
        client_of(bare).latest(subject)


@pytest.mark.slow
@pytest.mark.jvm
def test_schemas_outlive_a_crash_and_a_hanging_registry_is_given_up(subject):
    with LocalSchemaRegistry() as registry:
        quick = {"http.connect.timeout.ms": "1000", "http.read.timeout.ms": "1000", "retries.wait.ms": "10"}
        client = client_of(registry.url, **quick)
        registered = client.register(subject, avro("a"))
        registry.pause()
        with pytest.raises(RegistryError, match=r"no response within \d+ ms"):
            client.latest(subject)
        registry.resume()
        assert client_of(registry.url).latest(subject).id == registered.id
        registry.kill()
        assert not registry.alive()
        with pytest.raises(RegistryError, match=r"connection failed: Connection refused"):
            client.latest(subject)
        registry.start()
        assert client_of(registry.url).latest(subject)[:3] == registered[:3]
        registry.stop()
        assert not registry.alive()


MONEY = 'syntax = "proto3"; package common; message Money { int64 units = 1; }'
ORDER = """syntax = "proto3"; package shop;
import "money.proto"; import "google/protobuf/timestamp.proto";
message Header {}
message Order { string id = 1; common.Money price = 2; google.protobuf.Timestamp at = 3; }"""
KIND = pa.struct(
    [("id", pa.string()), ("price", pa.struct([("units", pa.int64())])), ("at", pa.timestamp("us", "UTC"))]
)
ROWS = pa.array([{"id": "ä", "price": {"units": -5}, "at": 1_500_000}, None], KIND)


def written(url, topic, rows=ROWS, **given):
    """By the sink's planning and its tasks' encoder."""
    given = {name.replace("_", "."): value for name, value in given.items()}
    formats = SinkOptions.parse(
        {"kafka.bootstrap.servers": "a:1", "valueFormat": "protobuf", "schema.registry.url": url, **given}
    ).formats
    assert formats.registry is not None
    registry = ConfluentRegistry(formats.registry, SystemClock())
    plan = plan_formats(formats, {Side.VALUE: FrameColumn(rows.type)}, topic, registry)
    values: list[bytes | None] = TaskFormats(plan).encode(Side.VALUE, rows, TopicColumn.of(topic)).values.to_pylist()
    return values


@pytest.mark.jvm
@pytest.mark.parametrize("registers", ["confluent-kafka", "the sink"])
def test_the_latest_version_and_an_id_are_written_and_read_by_confluent_kafka(
    local_schema_registry, registers, tmp_path
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


@pytest.mark.jvm
def test_confluents_own_files_need_no_reference(local_schema_registry, tmp_path):
    referee = SchemaRegistryClient({"url": local_schema_registry.url})
    number = referee.register_schema("priced-value", ConfluentSchema(PRICED, "PROTOBUF"))
    kind = pa.struct([("price", pa.struct([("value", pa.binary()), ("scale", pa.int32())]))])
    url, topic = local_schema_registry.url, "priced"
    rows = pa.array([{"price": {"value": b"7", "scale": 2}}], kind)
    (value,) = written(url, topic, rows, use_latest_version="true")
    assert value == b"\0" + number.to_bytes(4, "big") + b"\0\x0a\5\x0a\x017\x18\2"
    # And registered: the same text, so no new version.
    (tmp_path / "set").write_bytes(compile_proto(PRICED, (), "the schema"))
    written(url, topic, rows, valueDescriptorFile=str(tmp_path / "set"), valueMessage="Priced")
    assert referee.get_latest_version("priced-value").schema.references in (None, [])
