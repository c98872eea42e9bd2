"""Values for AWS Glue: header, compression and the number of a Protobuf message, and the options that ask for them."""

import pickle
import zlib
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.formats.plan import FrameColumn, derives, earlier_schemas, plan_formats
from spark_kafka_sink.schemas.formats.proto_text import message_number
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.schema import Schema, Side
from spark_kafka_sink.spark.formats import _frame_column
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.row_reader import topic_column
from tests.unit.encoding.protos import compiled
from tests.unit.formats.fake_registry import FakeRegistry

AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
STRUCT = pa.struct([("a", pa.int32())])
PROTO = "syntax = 'proto3'; package p; message M { map<string, int32> n = 2; message B {} message A {} int32 a = 1; }"
ALL = "schemaAutoRegistrationEnabled"


class FakeGlue(FakeRegistry):
    """``topics``: those that were told with a registration."""

    def __init__(self):
        super().__init__()
        self.topics = []

    def register(self, subject, schema, topic=""):
        self.topics.append(topic)
        return super().register(subject, schema)

    def by_id(self, schema_id, subject, *, serialized=False):
        return super().by_id(schema_id.int, subject)

    def _registered(self, subject, schema):
        found = super()._registered(subject, schema)
        return found._replace(id=UUID(int=found.id))


@pytest.fixture
def registry():
    return FakeGlue()


def parse(**given):
    glue = {"kafka.bootstrap.servers": "a:1", "schemaRegistry": "glue", "valueFormat": "avro", ALL: "true"}
    return SinkOptions.parse({**glue, **given}).formats


def plan(registry, topic="t", kind=STRUCT, side=Side.VALUE, **given):
    frame = {side: FrameColumn(kind)}
    return pickle.loads(pickle.dumps(plan_formats(parse(**given), frame, topic, registry)))


def written(formats, rows, topics="t", side=Side.VALUE):
    array = pa.array(rows, formats.columns[side].kind)
    of_rows = TopicColumn.of(topics) if isinstance(topics, str) else topic_column(pa.array(topics))
    return TaskFormats(formats).encode(side, array, of_rows).values.to_pylist()


def header(number, kind=b"\0"):
    return b"\3" + kind + UUID(int=number).bytes


@pytest.fixture
def descriptors(tmp_path):
    path = tmp_path / "m.desc"
    path.write_bytes(compiled(PROTO))
    return {"valueFormat": "protobuf", "valueDescriptorFile": str(path)}


def test_a_value_has_version_compression_and_uuid_in_front_and_null_stays_null(registry):
    assert written(plan(registry, valueSchema=AVRO), [{"a": 1}, None]) == [header(1) + b"\2", None]
    assert registry.requests == [("register", "t")]
    assert registry.topics == ["t"]
    compressed = written(plan(registry, valueSchema=AVRO, compression="ZLIB"), [None, {"a": 1}, {"a": 2}])
    assert compressed == [None, *(header(1, b"\5") + zlib.compress(each) for each in (b"\2", b"\4"))]
    assert written(plan(registry, valueSchema=AVRO, compression="zlib"), []) == []


@pytest.mark.parametrize(("message", "number"), [("M", 0), ("M.A", 1), ("M.B", 2)])
def test_the_number_of_a_protobuf_message_is_compressed_with_it(registry, descriptors, message, number):
    given = {**descriptors, "valueMessage": f"p.{message}"}
    kind, row = (STRUCT, {"a": 7}) if message == "M" else (pa.struct([]), {})
    value = bytes([number]) + (b"\x08\7" if message == "M" else b"")
    assert written(plan(registry, kind=kind, **given), [row]) == [header(1) + value]
    assert written(plan(registry, kind=kind, compression="zlib", **given), [row]) == [
        header(1, b"\5") + zlib.compress(value)
    ]


def test_entries_of_maps_count_and_the_number_is_an_unsigned_varint():
    descriptor_set = compiled("syntax = 'proto3'; package p; message M { map<int32, int32> e = 2; message Z {} }")
    assert [message_number(descriptor_set, name) for name in ("p.M", "p.M.Z")] == [0, 2]
    many = compiled("syntax = 'proto3';" + "".join(f"message M{number:03} {{}}" for number in range(200)))
    assert message_number(many, "M199") == 199
    options = parse(valueSchema=AVRO).registry
    found = FakeGlue().register("t", Schema("AVRO", AVRO))
    assert options.schema_name(found, (199,), Side.VALUE) == (header(1) + b"\xc7\1", None)


UNREADABLE = "Amazon's deserializer reads no groups and no editions"
ANOTHER = (
    "Amazon's deserializer may take {} for another message, because it counts nested ones twice if the file has no"
)


@pytest.mark.parametrize(
    ("text", "message", "fault"),
    [
        ("syntax = 'proto2'; package p; message M { optional group G = 1 {} }", "p.M", UNREADABLE),
        ("edition = '2023'; package p; message M {}", "p.M", UNREADABLE),
        ("syntax = 'proto3'; message M { message Line {} }", "M", ANOTHER.format("M")),
        ("syntax = 'proto3'; package a.b; message M { message aXb {} }", "a.b.M", ANOTHER.format("a.b.M")),
        ("syntax = 'proto3'; package shop; message Workshop { message Item {} }", "shop.Workshop",
         ANOTHER.format("shop.Workshop")),
    ],
)  # fmt: skip
def test_a_protobuf_message_that_amazons_deserializer_does_not_find_is_refused(text, message, fault):
    with pytest.raises(InvalidSchemaError, match=fault):
        message_number(compiled(text), message)


def test_nested_messages_do_no_harm_in_a_package_and_maps_without_one():
    descriptor_set = compiled("syntax = 'proto3'; package p; message A { message B { message C {} } }")
    assert [message_number(descriptor_set, f"p.{name}") for name in ("A", "A.B", "A.B.C")] == [0, 1, 2]
    maps = compiled("syntax = 'proto3'; message A { map<int32, int32> a = 1; } message B {}")
    assert message_number(maps, "B") == 2


def test_a_protobuf_file_with_imports_is_refused_but_for_googles(registry, tmp_path):
    path = tmp_path / "m.desc"
    text = "syntax = 'proto3'; import '{}.proto'; message M {{ {} a = 1; }}"
    path.write_bytes(compiled(text.format("other", "N"), other="syntax = 'proto3'; message N {}"))
    given = {"valueFormat": "protobuf", "valueDescriptorFile": str(path), "valueMessage": "M"}
    with pytest.raises(
        FormatError, match=f"valueDescriptorFile {path} is wrong: it imports other.proto, but this regi"
    ):
        plan(registry, kind=pa.struct([("a", pa.struct([]))]), **given)
    assert registry.requests == []
    path.write_bytes(compiled(text.format("google/protobuf/timestamp", "google.protobuf.Timestamp")))
    assert written(plan(registry, kind=pa.struct([("a", pa.timestamp("us", "UTC"))]), **given), [{"a": None}]) == [
        header(1) + b"\0"
    ]


def test_bytes_keep_their_length_and_json_is_written_as_it_is(registry):
    key = {"valueFormat": "raw", "keyFormat": "avro", "keySchema": '"bytes"', "schemaName": "keys"}
    assert written(plan(registry, kind=pa.binary(), side=Side.KEY, **key), [b"ab"], side=Side.KEY) == [
        header(1) + b"\4ab"
    ]
    text = plan(registry, kind=pa.string(), valueFormat="json", valueSchema="{}")
    assert written(text, ['{"a": 1}']) == [header(2) + b'{"a": 1}']
    assert registry.requests == [("register", "keys"), ("register", "t")]


def test_a_column_that_may_be_null_derives_the_record():
    formats = parse()
    assert derives(formats, Side.VALUE)
    field = t.StructField("value", t.StructType([t.StructField("a", t.LongType())]))
    assert _frame_column(formats, Side.VALUE, field).derived.startswith('{"type":"record"')


def test_each_topic_has_its_schema_unless_options_name_one(registry, monkeypatch):
    registry.serve_workers(monkeypatch)
    formats = plan(registry, topic=None, valueSchema=AVRO)
    assert registry.requests == []
    registry.register("x", Schema("AVRO", '"int"'))
    assert written(formats, [{"a": 1}, {"a": 2}], ["a", "x"]) == [header(2) + b"\2", header(2) + b"\4"]
    assert registry.topics[1:] == ["a", "x"]
    registry.topics.clear()
    assert written(plan(registry, topic=None, valueSchema=AVRO, schemaName="s"), [{"a": 1}], "b") == [header(2) + b"\2"]
    assert registry.topics == [""]


def test_a_replay_is_written_with_the_version_of_its_first_run(registry):
    old = registry.register("t", Schema("AVRO", AVRO.replace('"int"', '"long"')))
    formats = plan(registry, valueSchema=AVRO.replace('"int"', '["null","int"]'))
    cached = CachedRegistry(registry, formats.registry)
    earlier = earlier_schemas(formats, [(Side.VALUE, "t", old.id)], cached)
    task = TaskFormats(formats, earlier)
    assert task.encode(Side.VALUE, pa.array([{"a": 1}], STRUCT), TopicColumn.of("t")).values[0].as_py() == (
        header(1) + b"\2"
    )
    assert task.ids == ((Side.VALUE, "t", UUID(int=1)),)
    assert earlier_schemas(formats, [(Side.VALUE, "t", UUID(int=2))], cached) is None


# The options.

AVRO_KEY = {"keyFormat": "avro", "valueSchema": AVRO, "keySchema": '"string"'}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (AVRO_KEY, "schemaName is by default the topic, for key and value, which need a schema each: set "
                   "key.schemaName or value.schemaName."),
        ({**AVRO_KEY, "schemaName": "s"}, "schemaName is that of key and value, which need a schema each: set "
                                          "key.schemaName or value.schemaName."),
        ({"compression": "lz4"}, "compression must be none or zlib, for each value by itself (kafka.compression.type "
                                 "compresses batches), but is 'lz4'."),
        ({"avroRecordType": "GENERIC_RECORD", "cacheSize": "2"},
         "avroRecordType, cacheSize are for Amazon's consumers or Java classes: leave them out."),
        ({"dataFormat": "JSON"}, "dataFormat does not agree with valueFormat=avro: leave it out."),
        ({"schema.registry.url": "http://r"},
         "schema.registry.url needs schemaRegistry=confluent: set that, or leave schema.registry.url out."),
        ({"schemaRegistry": "confluent", ALL: "true"},
         "schemaautoregistrationenabled needs schemaRegistry=glue: set that, or leave "
         "schemaautoregistrationenabled out."),
        ({"valueFormat": "json"}, "valueFormat=json needs a schema: give valueSchema."),
        ({"valueFormat": "raw"},
         "schemaautoregistrationenabled, schemaregistry need keyFormat or valueFormat with avro, protobuf or json: set "
         "that, or leave them out."),
        ({"endpoint": "glue"}, "endpoint must be a URL that begins with https:// or http://, but is 'glue'."),
        ({"metadata.max.age.ms": "1"},
         "metadata.max.age.ms is an option of Kafka's producer: write kafka.metadata.max.age.ms."),
        ({"registry.nam": "x"}, "registry.nam is not an option of pykafka; did you mean registry.name?"),
    ],
)  # fmt: skip
def test_options_that_are_wrong_are_faults_that_say_what_to_do(given, fault):
    with pytest.raises(ConfigError) as raised:
        parse(**given)
    assert raised.value.faults == (fault,)


def test_names_of_glue_are_unknown_without_the_switch():
    """A file sink has an option compression, which is ignored with unknownOptions=warn."""
    given = {"kafka.bootstrap.servers": "a:1", "compression": "gzip"}
    with pytest.warns(UserWarning, match="compression needs schemaRegistry=glue: .*; did you mean kafka.compression.t"):
        assert SinkOptions.parse({**given, "unknownOptions": "warn"}).formats is None


def test_options_have_javas_names_and_defaults():
    options = parse(dataFormat="avro").registry
    assert (options.registry, options.compatibility, options.compression) == ("default-registry", "BACKWARD", "none")
    assert parse(**{ALL: "false"}).registry.side(Side.VALUE).auto_register is False
    given = {"tags.Team": "a", "metadata.b": "c", "region": "eu-west-1", "compatibility": "full_all", "schemaName": "s"}
    options = parse(**given).registry
    assert (options.tags, options.metadata, options.region) == ((("team", "a"),), (("b", "c"),), "eu-west-1")
    assert options.compatibility == "FULL_ALL"
    both = parse(**AVRO_KEY, **{"key.schemaName": "k"}).registry
    assert [both.side(side).subject("t", side, "") for side in Side] == ["k", "t"]
    secret = parse(proxyUrl="http://u:s3cret@proxy:1").registry
    assert "s3cret" not in repr(secret)
    assert pickle.loads(pickle.dumps(secret)) == secret
