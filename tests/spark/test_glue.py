"""Keys and values in the wire format of AWS Glue's schema registry, through Spark and real Kafka; read by Amazon's own
deserializer in Java."""

import json
from collections import Counter
from functools import cache
from uuid import UUID

import pytest
from google.protobuf import json_format

from tests.spark.conftest import AWS_CREDENTIALS
from tests.spark.writes import fails, lose_commit, one_row, save, stream, streaming
from tests.support.glue.reader import GlueReader
from tests.support.glue.server import ACCESS_DENIED, CONCURRENT, REGION, THROTTLED, GlueServer
from tests.unit.encoding.protos import compiled, upb

pytestmark = pytest.mark.jvm

NEW = ["GetSchemaByDefinition", "CreateSchema", "PutSchemaVersionMetadata"]
NEXT = ["GetSchemaByDefinition", "RegisterSchemaVersion", "PutSchemaVersionMetadata"]
ROW = (
    "struct(id, cast(id as string) name, if(id % 2 = 0, null, id / 2.0D) half, array(cast(id as int), -1) list, "
    "map('k', struct(id as x)) entries, struct(id % 3 = 0 as flag, cast('abc' as binary) raw) nested)"
)
PROTO = """syntax = "proto3"; package shop; message Zebra {} message Key { int64 k = 1; }
message Row {
  message Entry { int64 x = 1; }
  message Nested { bool flag = 1; bytes raw = 2; }
  int64 id = 1; string name = 2; optional double half = 3; repeated int32 list = 4; map<string, Entry> entries = 5;
  Nested nested = 6;
}"""
KEY_JSON = '{"type": "object", "properties": {"k": {"type": "integer"}}}'
ROW_JSON = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
ID_AND_MORE = """{"type": "record", "name": "topLevelRecord", "fields": [
    {"name": "id", "type": "long"}, {"name": "more", "type": ["null", "long"], "default": null}]}"""


@pytest.fixture(scope="module")
def server():
    with GlueServer() as server:
        yield server


@pytest.fixture(scope="module")
def reader(server, local_kafka):
    with GlueReader(local_kafka.bootstrap_servers, server.url) as reader:
        yield reader


@pytest.fixture
def glue(server):
    AWS_CREDENTIALS.write_text("[default]\naws_access_key_id = job\naws_secret_access_key = secret\n")
    server.forget()
    yield server
    AWS_CREDENTIALS.unlink(missing_ok=True)


@pytest.fixture
def avro(to_topic, glue):
    """Options of a write to the topic, its values encoded."""
    registry = {"schemaRegistry": "glue", "endpoint": glue.url, "region": REGION}
    return {**to_topic, **registry, "schemaAutoRegistrationEnabled": "true", "valueFormat": "avro"}


def expected(form, number):
    """Key and value of a row as the reader prints them."""
    key = {"k": number % 5}
    row = {
        "id": number, "name": str(number), "half": number / 2 if number % 2 else None, "list": [number, -1],
        "entries": {"k": {"x": number}}, "nested": {"flag": number % 3 == 0, "raw": "abc"},
    }  # fmt: skip
    if form != "avro":
        row["nested"]["raw"] = "YWJj"
    if form == "json":
        row = {name: value for name, value in row.items() if value is not None}
    elif form == "protobuf":
        key, row = as_protobuf("Key", key), as_protobuf("Row", row)
    return [key, None if number == 7 else row]


def as_protobuf(message, value):
    """In Protobuf's JSON, in which an int64 is text and a default is left out."""
    return json_format.MessageToDict(json_format.ParseDict(value, upb(shop(), f"shop.{message}")()))


@cache
def shop():
    return compiled(shop=PROTO)


def of_both_sides(form, topic, folder):
    """The options of a format for keys and values."""
    options = {}
    for side, message, schema in (("key", "shop.Key", KEY_JSON), ("value", "shop.Row", ROW_JSON)):
        options |= {f"{side}Format": form, f"{side}.schemaName": f"{topic.name}-{side}"}
        if form == "protobuf":
            (folder / "descriptors").write_bytes(shop())
            options |= {f"{side}DescriptorFile": str(folder / "descriptors"), f"{side}Message": message}
        elif form == "json":
            options[f"{side}Schema"] = schema
    return options


def version_id(glue, name, number=1):
    found = glue.ask(
        "GetSchemaVersion",
        SchemaId={"RegistryName": "default-registry", "SchemaName": name},
        SchemaVersionNumber={"VersionNumber": number},
    )
    return UUID(found["SchemaVersionId"]).bytes


def in_order(values):
    return sorted(json.dumps(value, sort_keys=True) for value in values)


@pytest.mark.parametrize("compression", ["NONE", "ZLIB"])
@pytest.mark.parametrize("form", ["avro", "protobuf", "json"])
def test_keys_and_values_are_read_as_they_were_written(spark, topic, avro, glue, reader, tmp_path, form, compression):
    options = {**avro, **of_both_sides(form, topic, tmp_path), "compression": compression}
    columns = ("struct(id % 5 as k)", f"if(id = 7, null, {ROW})")
    key, value = map("to_json({})".format, columns) if form == "json" else columns
    save(spark.range(100).selectExpr(f"{key} key", f"{value} value"), options)
    assert Counter(glue.operations()) == Counter([*NEW, *NEW])
    read = [[each["key"], each["value"]] for each in reader.read(topic.name)]
    assert in_order(read) == in_order(expected(form, number) for number in range(100))
    first = b"\3" + (b"\5" if compression == "ZLIB" else b"\0")
    assert {record.key[:18] for record in topic.records()} == {first + version_id(glue, f"{topic.name}-key")}
    values = {record.value[:18] for record in topic.records() if record.value is not None}
    assert values == {first + version_id(glue, f"{topic.name}-value")}


@pytest.mark.parametrize("message", ["A", "B.Inner", "B.Inner.Deep", "C"])
def test_each_message_of_a_file_is_found_by_its_place(spark, topic, avro, reader, tmp_path, message):
    body = """message C { int64 in_c = 1; } message A { int64 in_a = 1; map<string, C> all = 2; }
    message B { message Inner { message Deep { int64 in_deep = 1; } int64 in_inner = 1; map<int32, Deep> all = 2; } }"""
    (tmp_path / "set").write_bytes(compiled(m=f'syntax = "proto3"; package m; {body}'))
    last = message.rpartition(".")[2]
    options = {"valueFormat": "protobuf", "valueDescriptorFile": str(tmp_path / "set"), "valueMessage": f"m.{message}"}
    save(one_row(spark, f"struct(5L in_{last.lower()}) value"), {**avro, **options})
    assert [each["value"] for each in reader.read(topic.name)] == [{f"in{last}": "5"}]


def test_a_version_that_is_compatible_is_waited_for_and_its_rows_are_read_beside_earlier_ones(
    spark, topic, avro, glue, reader
):
    described = {"description": "orders", "compatibility": "FULL", "tags.team": "shop", "metadata.origin": "test"}
    save(one_row(spark, "struct(1L id) value"), {**avro, **described})
    created = next(each.body for each in glue.asked if each.operation == "CreateSchema")
    assert (created["Description"], created["Compatibility"]) == ("orders", "FULL")
    assert created["Tags"] == {"team": "shop"}
    metadata = [each.body["MetadataKeyValue"] for each in glue.asked if each.operation == "PutSchemaVersionMetadata"]
    assert {each["MetadataKey"]: each["MetadataValue"] for each in metadata} == {
        "x-amz-meta-transport": topic.name, "origin": "test",
    }  # fmt: skip
    glue.forget()
    glue.pending = 3
    save(one_row(spark, "struct(2L id, 3L more) value"), {**avro, "valueSchema": ID_AND_MORE})
    assert glue.operations() == NEXT
    read = [each["value"] for each in reader.read(topic.name)]
    assert sorted(read, key=lambda row: row["id"]) == [{"id": 1}, {"id": 2, "more": 3}]
    assert {record.value[2:18] for record in topic.records()} == {version_id(glue, topic.name, n) for n in (1, 2)}


def test_a_version_that_is_incompatible_fails_the_write_every_time(spark, topic, avro, glue):
    save(one_row(spark, "struct(1L id) value"), avro)
    glue.forget()
    glue.incompatible = True
    for operations in (NEXT[:2], NEXT[:1]):
        said = fails(save, one_row(spark, "struct(1L id, 2L more) value"), avro)
        assert "FAILURE" in said
        assert "default" in said, "what to do"
        assert glue.operations() == operations
        glue.asked.clear()
    assert topic.count() == 1


def test_a_schema_that_is_not_there_is_not_created_unless_it_is_asked_for(spark, topic, avro, glue):
    del avro["schemaAutoRegistrationEnabled"]
    said = fails(save, one_row(spark, "struct(1L id) value"), avro)
    assert "schemaAutoRegistrationEnabled" in said
    assert glue.operations() == NEW[:1]
    assert topic.count() == 0


def test_a_schema_that_another_writer_creates_meanwhile_is_used(spark, topic, avro, glue, reader):
    save(one_row(spark, "struct(1L id) value"), avro)
    glue.forget()
    glue.fail(
        "GetSchemaByDefinition", ("EntityNotFoundException", "Schema is not found. RegistryName: default-registry")
    )
    save(one_row(spark, "struct(2L id, 3L more) value"), {**avro, "valueSchema": ID_AND_MORE})
    assert glue.operations() == [*NEW[:2], *NEXT[1:]]
    assert sorted(each["value"]["id"] for each in reader.read(topic.name)) == [1, 2]


def test_an_exactly_once_replay_finds_the_version_that_the_ledger_names(spark, topic, avro, glue, reader, tmp_path):
    options = {**avro, "deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic.name}
    rows = [spark.range(first, first + 50).selectExpr("struct(id) value") for first in (0, 50)]
    stream(streaming(rows[0], tmp_path / "in"), options, tmp_path / "checkpoint")
    lose_commit(tmp_path / "checkpoint", 0)
    glue.forget()
    frame = streaming(rows[1], tmp_path / "in")
    stream(frame, {**options, "valueSchema": ID_AND_MORE}, tmp_path / "checkpoint")
    assert glue.operations() == NEXT
    assert [each.body for each in glue.asked if each.operation == "GetSchemaVersion"] == [
        {"SchemaVersionId": str(UUID(bytes=version_id(glue, topic.name)))}
    ]
    read = sorted((each["value"] for each in reader.read(topic.name)), key=lambda row: row["id"])
    assert read == [{"id": n} if n < 50 else {"id": n, "more": None} for n in range(100)]


def test_topics_that_only_rows_name_have_schemas_of_their_own(spark, topic, second_topic, avro, glue, reader):
    frame = spark.range(100).selectExpr(
        "struct(id) value", f"if(id % 3 = 0, '{topic.name}', '{second_topic.name}') topic"
    )
    del avro["topic"]
    save(frame, avro)
    by_topic = Counter((each.operation, each.body["SchemaId"]["SchemaName"]) for each in lookups(glue))
    assert set(by_topic) == {("GetSchemaByDefinition", each.name) for each in (topic, second_topic)}
    assert max(by_topic.values()) <= 3, "once a worker, and once the driver, for the next write"
    assert sorted(each["value"]["id"] for each in reader.read(topic.name)) == [*range(0, 100, 3)]
    assert sorted(each["value"]["id"] for each in reader.read(second_topic.name)) == [n for n in range(100) if n % 3]
    assert {record.value[2:18] for record in second_topic.records()} == {version_id(glue, second_topic.name)}
    glue.forget()
    save(frame, avro)
    assert glue.asked == []


def lookups(glue):
    return [each for each in glue.asked if each.operation == "GetSchemaByDefinition"]


def test_calls_that_glue_throttles_are_made_again_and_metadata_may_fail(spark, topic, avro, glue, reader):
    glue.fail("GetSchemaByDefinition", THROTTLED, times=2)
    glue.fail("CreateSchema", CONCURRENT)
    glue.fail("PutSchemaVersionMetadata", ACCESS_DENIED)
    save(one_row(spark, "struct(1L id) value"), avro)
    assert glue.operations() == [*NEW[:1] * 3, *NEW[1:2] * 2, NEW[2]]
    assert [each["value"] for each in reader.read(topic.name)] == [{"id": 1}]


def test_what_is_refused_names_the_permission(spark, topic, avro, glue):
    glue.fail("GetSchemaByDefinition", ACCESS_DENIED, times=9)
    said = fails(save, one_row(spark, "struct(1L id) value"), avro)
    assert "AccessDeniedException" in said
    assert "glue:GetSchemaByDefinition" in said
    assert topic.count() == 0


@pytest.mark.parametrize("missing", ["region", "credentials"])
def test_what_a_call_needs_is_named(spark, topic, avro, glue, missing):
    if missing == "credentials":
        AWS_CREDENTIALS.unlink()
    else:
        del avro["region"]
    said = fails(save, one_row(spark, "struct(1L id) value"), avro)
    assert missing in said
    assert glue.asked == []
    assert topic.count() == 0
