"""Options, columns and a registry → the plan of a write, on the driver."""

import base64
import json
import os
import pickle

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.formats.plan import FrameColumn, earlier_schemas, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import ApplicationFile, CachedRegistry
from spark_kafka_sink.schemas.registry.schema import Schema, SchemaReference, Side
from spark_kafka_sink.spark.options import SinkOptions
from tests.support.manual_clock import ManualClock
from tests.unit.encoding.protos import compiled, files_of
from tests.unit.formats.fake_registry import FakeRegistry, formats_of

STRUCT = pa.struct([("a", pa.int32())])


def record(*names, name="R"):
    fields = [{"name": each, "type": ["int", "null"]} for each in names]
    return json.dumps({"type": "record", "name": name, "namespace": "n", "fields": fields})


def plan(registry, topic="t", derived=None, kind=STRUCT, **given):
    frame = {Side.VALUE: FrameColumn(kind, derived)}
    return pickle.loads(pickle.dumps(plan_formats(formats_of(**given), frame, topic, registry)))


def written(formats, rows, topics="t"):
    array = pa.array(rows, formats.columns[Side.VALUE].kind)
    return TaskFormats(formats).encode(Side.VALUE, array, TopicColumn.of(topics)).values.to_pylist()


@pytest.fixture
def registry():
    return FakeRegistry()


def avro(text):
    return Schema("AVRO", text)


def test_an_explicit_schema_is_registered_once_per_plan_and_named_in_front_of_each_value(registry):
    registry.register("other", avro('"string"'))
    formats = plan(registry, valueSchema=record("a"))
    assert registry.requests[1:] == [("register", "t-value")]
    assert written(formats, [{"a": 1}, None]) == [b"\0\0\0\0\2\0\2", None]


def test_without_registration_the_schema_must_be_there(registry):
    given = {"valueSchema": record("a"), "auto.register.schemas": "false"}
    with pytest.raises(FormatError, match="t-value has no such schema"):
        plan(registry, **given)
    registry.register("t-value", avro(record("a")))
    assert written(plan(registry, **given), [{"a": 1}]) == [b"\0\0\0\0\1\0\2"]


HOSTILE = "x\n2026-01-01 ERROR forged\x1b[2J\u202e" + "y" * 100_000


def proto_file(name, message):
    file = FileDescriptorProto(name=name, message_type=[{"name": message}], dependency=["no.proto"])
    return Schema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())


@pytest.mark.parametrize(
    "schema",
    [
        avro(HOSTILE),
        avro(record(HOSTILE).replace(', "null"]', "]")),
        avro(json.dumps({"type": HOSTILE})),
        avro(json.dumps({"type": "enum", "name": "E", "symbols": [HOSTILE]})),
        proto_file(HOSTILE, "M"),
        Schema("PROTOBUF", f"message {HOSTILE}"),
        Schema("PROTOBUF", "", (SchemaReference(HOSTILE, "t-value", 1),)),
    ],
    ids=["text", "field", "type", "symbol", "file", "protoc", "reference"],
)
def test_incident_what_a_registry_said_forged_lines_of_logs_and_had_289_001_characters(registry, schema):
    registry.register("t-value", schema)
    with pytest.raises(FormatError) as raised:
        plan(registry, valueFormat=schema.type.lower(), use_latest_version="true")
    error = str(raised.value)
    assert len(error) < 21_000
    assert error.replace("\n- ", "").isprintable()


def test_an_explicit_schema_must_be_the_one_that_is_written_unless_not_strict(registry):
    for names in ("a", "ab"):
        registry.register("t-value", avro(record(*names)))
    old, new = ({"use.latest.version": "true", "valueSchema": record(*names)} for names in ("a", "ab"))
    assert written(plan(registry, **new), [{"a": 1}]) == [b"\0\0\0\0\2\0\2\2"]
    with pytest.raises(FormatError) as raised:
        plan(registry, **old)
    assert str(raised.value) == (
        "latest.compatibility.strict: schema 2 of subject t-value is to be written for the column value, but the one "
        "that the options give is schema 1 of subject t-value. Leave the options of the schema out, give that one, or "
        "set latest.compatibility.strict=false."
    )
    by_id = {"use.schema.id": "1", "valueSchema": record("a", "c")}
    with pytest.raises(FormatError, match=r"^id\.compatibility\.strict: schema 1 .* is not under subject t-value\. "):
        plan(registry, **by_id)
    lax = {f"{each}.compatibility.strict": "false" for each in ("latest", "id")}
    assert written(plan(registry, **old, **lax), [{"a": 1}]) == [b"\0\0\0\0\2\0\2\2"]
    assert written(plan(registry, **by_id, **lax), [{"a": 1}]) == [b"\0\0\0\0\1\0\2"]


def test_an_explicit_json_schema_must_be_the_latest(registry):
    json_format = {"valueFormat": "json", "use.latest.version": "true", "kind": pa.string()}
    registry.register("t-value", Schema("JSON", '{"title": "U"}'))
    with pytest.raises(FormatError, match="the options give is not under subject t-value"):
        plan(registry, **json_format, valueSchema="{}")
    assert written(plan(registry, **json_format, valueSchema='{"title": "U"}'), ["x"]) == [b"\0\0\0\0\1x"]


def test_with_a_column_topic_each_latest_is_compared_in_its_task(registry, monkeypatch):
    registry.serve_workers(monkeypatch)
    registry.register("good-value", avro(record("a")))
    registry.register("bad-value", avro(record("b")))
    given = {"use.latest.version": "true", "valueSchema": record("a")}
    formats = plan(registry, topic=None, **given)
    assert written(formats, [{"a": 1}], "good") == [b"\0\0\0\0\1\0\2"]
    with pytest.raises(FormatError, match="schema 2 of subject bad-value is to be written .*, but the one that the"):
        written(formats, [{"a": 1}], "bad")
    with pytest.raises(FormatError, match="^The column value cannot be encoded: valueSchema is wrong"):
        plan(registry, topic=None, **{**given, "valueSchema": "3"})


@pytest.mark.parametrize(
    "given",
    [
        {"valueSchema": record("a")},
        {"valueSchema": record("a"), "auto.register.schemas": "false"},
        {"use.latest.version": "true"},
        {"use.schema.id": "1"},
    ],
)
def test_incident_a_field_that_the_registrys_rules_encrypt_was_written_in_plain_text(registry, given):
    registry.register("t-value", avro(record("a")))
    registry.rules["t-value"] = ("pii (ENCRYPT)", "check (CEL)")
    with pytest.raises(FormatError) as raised:
        plan(registry, **given)
    assert str(raised.value).startswith("Schema 1 of subject t-value has rules")
    assert "pii (ENCRYPT), check (CEL)" in str(raised.value)


def test_rules_of_an_imported_schema_are_none_of_the_writer(registry):
    """As in Java."""
    registry.register("common", avro('{"type": "enum", "name": "E", "symbols": ["X"]}'))
    registry.rules["common"] = ("pii (ENCRYPT)",)
    text = '{"type": "record", "name": "R", "fields": [{"name": "e", "type": "E"}]}'
    registry.register("t-value", Schema("AVRO", text, (SchemaReference("E", "common", 1),)))
    formats = plan(registry, kind=pa.struct([("e", pa.string())]), use_latest_version="true")
    assert written(formats, [{"e": "X"}]) == [b"\0\0\0\0\2\0"]


def test_a_schema_of_another_format_is_refused(registry):
    registry.register("t-value", Schema("JSON", "{}"))
    with pytest.raises(FormatError, match="Schema 1 of subject t-value is of type JSON, but valueFormat is avro"):
        plan(registry, use_latest_version="true")


def test_a_column_that_does_not_fit_registers_nothing(registry):
    with pytest.raises(FormatError, match=r"The column value does not fit valueSchema:\n- x: "):
        plan(registry, kind=pa.struct([("a", pa.int32()), ("x", pa.string())]), valueSchema=record("a"))
    assert registry.requests == []


def test_a_derived_schema_that_the_registry_refuses_points_at_an_explicit_one(registry):
    registry.refuses = True
    with pytest.raises(FormatError, match="no field has a default: give valueSchema with a default for each new field"):
        plan(registry, derived=record("a"))
    with pytest.raises(FormatError, match=r"incompatible with an earlier schema\.$"):
        plan(registry, valueSchema=record("a"))


def test_record_names_make_subjects_and_a_bare_schema_has_none(registry):
    plan(registry, valueSchema=record("a"), **{"value.subject.name.strategy": "record"})
    plan(registry, valueSchema=record("a"), **{"value.subject.name.strategy": "topic-record"})
    assert [subject for _, subject in registry.requests] == ["n.R", "t-n.R"]
    with pytest.raises(FormatError, match=r"value\.subject\.name\.strategy=record needs the name of a record"):
        plan(registry, kind=pa.int32(), valueSchema='"int"', **{"value.subject.name.strategy": "record"})


def test_a_header_needs_a_guid():
    given = {"valueSchema": record("a"), "value.schema.id.serializer": "header"}
    with pytest.raises(FormatError, match=r"value\.schema\.id\.serializer=header: the registry gives schema 1 of sub"):
        plan(FakeRegistry(), **given)
    formats = plan(FakeRegistry(guids=True), **given)
    encoded = TaskFormats(formats).encode(Side.VALUE, pa.array([{"a": 1}, None], STRUCT), TopicColumn.of("t"))
    assert encoded.values.to_pylist() == [b"\0\2", None]
    assert encoded.headers.to_pylist() == [b"\1" + (1).to_bytes(16, "big"), None]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "^The column value cannot be encoded: {} is wrong: the Avro schema is not JSON .Expecting value"),
        (b"{\xff}", r"^{} is not UTF-8 at byte 1\."),
    ],
)
def test_a_schema_file_with_other_content_is_named_with_its_path(registry, tmp_path, content, said):
    path = tmp_path / "schema.avsc"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=said.format(f"valueSchemaFile {path}")):
        plan(registry, valueSchemaFile=str(path))


def test_incident_a_schema_file_that_is_a_pipe_or_a_device_held_the_driver(registry, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, "/dev/zero"):
        with pytest.raises(FormatError, match=f"^valueSchemaFile {path} is not a regular file"):
            plan(registry, valueSchemaFile=str(path))


def test_a_schema_file_may_begin_with_a_byte_order_mark(registry, tmp_path):
    path = tmp_path / "schema.avsc"
    path.write_bytes(b"\xef\xbb\xbf" + record("a").encode())
    plan(registry, valueSchemaFile=str(path))
    assert registry.latest("t-value").schema == avro(record("a"))


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3", "3 is not a type"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Gone"}]}', "unknown type Gone"),
        ('{"type": "record", "name": "R", "fields": 3}', "record: fields must be a list, but is 3"),
        ('{"type": "record", "name": "R"}', "lacks the attribute 'fields'"),
        ('{"type": "fixed", "name": "F", "size": "x"}', 'fixed: size must be a whole number, but is "x"'),
    ],
)
def test_json_that_is_no_avro_schema_is_one_error_in_avros_words(registry, text, said, registered):
    given, origin = {"valueSchema": text}, "valueSchema"
    if registered:
        registry.register("t-value", avro(text))
        given, origin = {"use_latest_version": "true"}, "schema 1 of subject t-value"
    with pytest.raises(FormatError, match=f"^The column value cannot be encoded: {origin} is wrong: ") as raised:
        plan(registry, **given)
    assert said in str(raised.value)


@pytest.mark.parametrize("text", ["3", "[]", '"object"', "null", "{"])
def test_json_that_is_no_json_schema_is_refused(registry, text):
    with pytest.raises(FormatError, match="^valueSchema is not (a JSON Schema|JSON: )"):
        plan(registry, kind=pa.string(), valueFormat="json", valueSchema=text)
    assert registry.requests == []
    plan(registry, kind=pa.string(), valueFormat="json", valueSchema="true")


(FILE,) = files_of(compiled('syntax = "proto3"; message Order { int32 a = 1; }'))
SERIALIZED = Schema("PROTOBUF", base64.b64encode(FILE.SerializeToString()).decode())


def test_a_message_names_the_subject_without_its_descriptor(registry):
    registry.register("Order", SERIALIZED)
    latest = {"valueFormat": "protobuf", "use.latest.version": "true", "value.subject.name.strategy": "record"}
    assert written(plan(registry, valueMessage="Order", **latest), [{"a": 1}]) == [b"\0\0\0\0\1\0\x08\1"]
    with pytest.raises(FormatError, match=r"Give valueMessage, its full name, or use the strategy topic\.$"):
        plan(registry, **latest)


def test_a_message_that_the_registrys_schema_lacks_is_named_with_it(registry):
    registry.register("t-value", SERIALIZED)
    with pytest.raises(
        FormatError, match=r"^valueMessage was not found in schema 1 of subject t-value: .* it has Order"
    ):
        plan(registry, valueFormat="protobuf", use_latest_version="true", valueMessage="Nope")


# Later plannings of an application: responses are kept, replays written with the schemas of their first run.

OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":null}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null}]}'


def plan_later(registry, folder, application="app", **given):
    """In a new planning process."""
    file = ApplicationFile(application, ManualClock(), folder / "private")
    return plan(CachedRegistry(registry, formats_of(**given).registry, file), **given)


def written_by_task(formats, earlier=None):
    """The value of one row, and the task."""
    task = TaskFormats(formats, earlier)
    return task.encode(Side.VALUE, pa.array([{"a": 1}], STRUCT), TopicColumn.of("t")).values[0].as_py(), task


def test_a_replay_is_written_with_the_schemas_of_its_first_run(registry, tmp_path):
    latest = {"use_latest_version": "true"}
    registry.register("t-value", avro(OLD))
    before = written_by_task(plan_later(registry, tmp_path, **latest))[0]
    registry.register("t-value", avro(NEW))
    formats = plan_later(registry, tmp_path, application="next", **latest)
    earlier = earlier_schemas(formats, [(Side.VALUE, "t-value", 1)], registry)
    value, task = written_by_task(formats, earlier=earlier)
    assert value == before == b"\0\0\0\0\1\2\2"
    assert task.ids == ((Side.VALUE, "t-value", 1),)
    assert written_by_task(formats)[0] == b"\0\0\0\0\2\2\2"


def test_the_same_schemas_need_nothing(registry, tmp_path):
    formats = plan_later(registry, tmp_path, valueSchema=OLD)
    del registry.requests[:]
    assert earlier_schemas(formats, [(Side.VALUE, "t-value", 1)], registry) is None
    assert registry.requests == []


def test_an_earlier_schema_that_no_longer_fits_fails_only_the_replay(registry, tmp_path):
    registry.register("t-value", avro('{"type":"record","name":"R","fields":[{"name":"gone","type":"int"}]}'))
    earlier = earlier_schemas(plan_later(registry, tmp_path, valueSchema=OLD), [(Side.VALUE, "t-value", 1)], registry)
    assert "The column value does not fit schema 1 of subject t-value" in earlier.fault


# keyFormat, valueFormat and the registry's options beside them: what goes together.

URL = {"schema.registry.url": "http://registry:8081"}
AVRO = {"valueFormat": "avro"}


def parse(options):
    return SinkOptions.parse({"kafka.bootstrap.servers": "a:1", **options}).formats


def faults(options):
    with pytest.raises(ConfigError) as raised:
        parse(options)
    return raised.value.faults


def test_raw_is_the_default_and_needs_nothing():
    assert parse({}) is None
    assert parse({"keyFormat": "raw", "valueformat": "raw"}) is None


WITHOUT_A_SCHEMA = (
    "valueFormat=protobuf needs a schema: give valueDescriptorFile and valueMessage, or a registry with "
    "use.latest.version or use.schema.id."
)
REFUSED = {
    "registry options when both are raw": (
        {**URL, "auto.register.schemas": "false"},
        [
            "auto.register.schemas, schema.registry.url need keyFormat or valueFormat with avro, protobuf or json: set "
            "that, or leave them out."
        ],
    ),
    "an unknown format": (
        {"valueFormat": "parquet"}, ["valueFormat must be one of raw, avro, protobuf, json, but is 'parquet'."],
    ),
    "options of a schema belong to their format": (
        {"keySchema": '"int"', "valueMessage": "a.B", **AVRO},
        [
            "keySchema needs keyFormat=avro or json: set that, or leave keySchema out.",
            "valueMessage needs valueFormat=protobuf: set that, or leave valueMessage out.",
        ],
    ),
    "a schema is given once": (
        {**AVRO, "valueSchema": '"int"', "valueSchemaFile": "/x"},
        ["valueSchema and valueSchemaFile set the same thing: leave one of them out."],
    ),
    "a descriptor set needs the message": (
        {"valueFormat": "protobuf", "valueDescriptorFile": "/x"},
        ["valueDescriptorFile needs valueMessage, the message in it."],
    ),
    "Protobuf derives no schema": ({"valueFormat": "protobuf"}, [WITHOUT_A_SCHEMA]),
    "nor with a registry": ({"valueFormat": "protobuf", **URL}, [WITHOUT_A_SCHEMA]),
    "nor for a message": ({"valueFormat": "protobuf", "valueMessage": "a.B"}, [WITHOUT_A_SCHEMA]),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_options_that_do_not_go_together_are_refused(what):
    options, said = REFUSED[what]
    assert list(faults(options)) == said


def test_json_needs_a_registry_and_a_schema():
    assert faults({"valueFormat": "json", "valueSchema": "{}"}) == (
        "valueFormat=json needs schema.registry.url; without a registry valueFormat=raw writes the same.",
    )
    (fault,) = faults({"valueFormat": "json", **URL})
    assert "valueFormat=json needs a schema: give valueSchema, or a registry with use.latest.version" in fault
    assert parse({"valueFormat": "json", **URL, "use.latest.version": "true"}) is not None
    assert parse({"valueFormat": "json", **URL, "use.schema.id": "7"}) is not None
