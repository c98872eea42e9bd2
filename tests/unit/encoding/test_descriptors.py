"""Descriptor sets: messages and their numbers, imports, and the text that a registry gets."""

import base64

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from google.protobuf import descriptor_pb2

from spark_kafka_sink import encode_protobuf
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.schemas.encoding.descriptors import (
    DECIMAL,
    META,
    descriptor_set_of,
    known_file,
    message_descriptor,
    ordered_files,
)
from spark_kafka_sink.schemas.formats.proto_text import compile_proto, message_indexes, proto_files
from tests.unit.encoding.protos import compiled, files_of

NESTED = compiled(
    """
    syntax = "proto3";
    package shop;
    message First {}
    message Order { map<string, int32> counts = 1; message Line { message Part {} message Other {} } message Last {} }
    """
)
TWO_FILES = {
    "a": 'syntax = "proto3"; package a; import "b.proto"; import "google/protobuf/timestamp.proto";'
    "message M { b.B b = 1; google.protobuf.Timestamp at = 2; }",
    "b": 'syntax = "proto3"; package b; message B { int32 x = 1; }',
}


@pytest.mark.parametrize("message", ["First", "Order", "Order.Line", "Order.Line.Other", "Order.Last"])
def test_message_indexes_are_those_of_confluents_serializer(message):
    descriptor = message_descriptor(NESTED, f"shop.{message}")
    assert list(message_indexes(NESTED, f"shop.{message}", counts_entries=True)) == _create_index_array(descriptor)


def test_a_message_at_the_top_of_a_file_is_found_by_its_short_name():
    assert message_descriptor(NESTED, "Order").full_name == "shop.Order"
    assert message_descriptor(NESTED, ".shop.Order.Line").full_name == "shop.Order.Line"


def test_an_unknown_message_is_an_error_that_names_those_of_the_set():
    with pytest.raises(ConfigError, match=r"^the descriptor set has no message Odrer; it has shop.First, shop.Order$"):
        message_descriptor(NESTED, "Odrer")


def test_a_short_name_of_two_messages_is_an_error():
    two = compiled(
        a='syntax = "proto3"; package a; message M {}', b='syntax = "proto3"; package b; message M {}', imports=False
    )
    with pytest.raises(ConfigError, match=r"^M is the name of a.M, b.M: give the full name$"):
        message_descriptor(two, "M")


def test_a_missing_import_is_an_error():
    only_a = descriptor_pb2.FileDescriptorSet(file=[files_of(compiled(**TWO_FILES))[-1]])
    with pytest.raises(ConfigError, match=r"^the descriptor set lacks b.proto, which a.proto imports"):
        message_descriptor(only_a.SerializeToString(), "a.M")


@pytest.mark.parametrize("content", [b"not a descriptor set", b"\x0a\x05abc", "orders.desc", None])
def test_bytes_that_are_no_descriptor_set_are_an_error(content):
    with pytest.raises(ConfigError, match=r"^not a Protobuf descriptor set: make it with protoc --include_imports"):
        message_descriptor(content, "M")


def test_a_set_is_made_of_what_a_registry_keeps_serialized():
    files = {each.name: each for each in files_of(compiled(**TWO_FILES))}
    files["b.proto"].name = "default"  # a registry may not know the names
    text = {name: base64.b64encode(each.SerializeToString()).decode() for name, each in files.items()}
    descriptor_set = descriptor_set_of(text["a.proto"], imports={"b.proto": text["b.proto"]})
    assert message_descriptor(descriptor_set, "a.M").fields_by_name["b"].message_type.full_name == "b.B"


@pytest.mark.parametrize("text", ['syntax = "proto3"; message M {}', "AAAA", "x"])
def test_what_is_not_serialized_is_an_error(text):
    with pytest.raises(ConfigError, match=r"^the schema is not a serialized Protobuf file \(format=serialized\): "):
        descriptor_set_of(text)


@pytest.mark.parametrize(("name", "module"), [(META, meta_pb2), (DECIMAL, decimal_pb2)])
def test_confluents_own_files_are_those_of_its_clients(name, module):
    theirs = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    theirs.ClearField("options")  # go_package
    assert known_file(name) == theirs


PRICED = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
message Priced {
  option (confluent.message_meta).doc = "d";
  confluent.type.Decimal price = 1 [(confluent.field_meta) = { params { key: "p" value: "v" } tags: "PII" }];
}"""
PRICE_KIND = pa.struct([("value", pa.binary()), ("precision", pa.int32()), ("scale", pa.int32())])
PRICE = pa.array([{"price": {"value": b"\1", "precision": 3, "scale": 2}}], pa.struct([("price", PRICE_KIND)]))


def read_price(value: bytes) -> tuple[bytes, int, int]:
    assert value[:2] == b"\n\7"
    price = decimal_pb2.Decimal.FromString(value[2:])
    return price.value, price.precision, price.scale


def test_a_schema_may_import_confluents_own_files_without_references():
    """As a registry's text, as its serialized file and in a descriptor set that lacks them."""
    whole = compile_proto(PRICED, (), "the schema")
    file = files_of(whole)[-1]
    serialized = descriptor_set_of(base64.b64encode(file.SerializeToString()).decode())
    without_imports = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    for descriptor_set in (whole, serialized, without_imports):
        (value,) = encode_protobuf(PRICE, descriptor_set, "Priced").to_pylist()
        assert read_price(value) == (b"\1", 3, 2)


def test_confluents_own_files_are_not_registered():
    whole = compile_proto(PRICED, (), "the schema")
    (file,) = proto_files(whole, "Priced")
    assert file.imports == ()
    assert files_of(compile_proto(file.text, (), "the schema"))[-1] == files_of(whole)[-1]


def test_incident_files_that_import_all_earlier_ones_were_walked_once_per_path():
    """40 files have 2^40 paths."""
    names = [f"{number:02}.proto" for number in range(40)]
    files = [
        descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3", dependency=names[:number])
        for number, name in enumerate(names)
    ]
    files[0].message_type.add(name="First")
    files[-1].message_type.add(name="Last")
    descriptor_set = descriptor_pb2.FileDescriptorSet(file=reversed(files)).SerializeToString()
    assert [each.name for each in ordered_files(descriptor_set)] == names
    assert [each.name for each in proto_files(descriptor_set, "Last")] == names


def test_files_that_import_each_other_are_refused():
    files = [
        descriptor_pb2.FileDescriptorProto(name=name, dependency=[other])
        for name, other in (("a", "b"), ("b", "c"), ("c", "a"))
    ]
    descriptor_set = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    with pytest.raises(ConfigError, match="files that import each other: a, b, c"):
        ordered_files(descriptor_set)


@pytest.mark.parametrize("name", [b"a.proto", b"b.proto"])
def test_incident_a_file_name_that_is_not_utf_8_was_another_error(name):
    damaged = compiled(imports=True, **TWO_FILES).replace(name, b"\xff" + name[1:])
    with pytest.raises(ConfigError, match=r"^the descriptor set has a file or an import whose name is not UTF-8$"):
        proto_files(damaged, "M")


@pytest.mark.parametrize("name", ["google/protobuf/a\0.proto", "google/protobuf/a.b.proto", "google/type//a.proto"])
def test_incident_an_import_with_a_null_byte_was_looked_for_as_a_module(name):
    """As `make fuzz` found: a ValueError of Python's import."""
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="a.proto").dependency.append(name)
    with pytest.raises(ConfigError, match=r"^the descriptor set lacks google/"):
        ordered_files(files.SerializeToString())


# Descriptors as text.

PROTO2 = r"""
syntax = "proto2";
package shop.orders;
import "google/protobuf/descriptor.proto";
import "google/protobuf/timestamp.proto";
option java_package = "com.shop\t\"é";
option optimize_for = SPEED;
option (owner) = { name: "orders" tags: ["a", "b"] [shop.orders.deep]: 2.5 };
message Owner { optional string name = 1; repeated string tags = 2; extensions 100; }
extend Owner { optional float deep = 100; }
extend google.protobuf.FileOptions { optional Owner owner = 50000; }
extend google.protobuf.FieldOptions {
  repeated int32 level = 50000; optional Kind kind = 50001; optional bool on = 50002;
}
enum Kind {
  option allow_alias = true;
  ZERO = 0; NULL = 0; LOW = -5 [deprecated = true];
  reserved 7, 10 to 20, 30 to max; reserved "OLD";
}
message Order {
  option deprecated = true;
  map<string, Order> by_name = 3;
  message Line {
    optional int32 n = 1;
    oneof by { int32 a = 2; string b = 3 [deprecated = true]; group Third = 4 { optional int32 x = 1; } }
    optional int32 last = 5;
  }
  enum Nested { A = 1; }
  required int64 id = 1 [default = -7, (level) = 1, (level) = 2, (kind) = LOW, (on) = true];
  repeated Line lines = 2 [(on) = false];
  optional group Extra = 4 { optional bytes data = 1 [default = "\000\377\"x"]; message In {} }
  optional string text = 5 [default = "q\"\\\n é", json_name = "TEXT"];
  optional double far = 6 [default = -inf];
  optional double none = 7 [default = nan];
  optional Nested nested = 8 [default = A];
  repeated int32 packed = 9 [packed = true];
  optional bool flag = 10 [default = true];
  optional .google.protobuf.Timestamp at_time = 11;
  reserved 20, 30 to 40; reserved "gone", "lost";
  extensions 100 to 199 [verification = UNVERIFIED];
  extensions 1000 to max;
  extend Order { optional int32 own = 150; }
}
extend Order { repeated group Grown = 151 { optional int32 y = 1; } }
message Set { option message_set_wire_format = true; extensions 4 to max; }
service Orders {
  option deprecated = true;
  rpc Put (Order) returns (stream Order.Line) { option idempotency_level = IDEMPOTENT; }
  rpc Watch (stream Order) returns (Order);
}
"""

PROTO3 = """
syntax = "proto3";
package shop;
import public "b.proto";
import "google/protobuf/wrappers.proto";
message M {
  optional int32 maybe = 1; oneof one { shop.orders.Order order = 2; google.protobuf.Int32Value value = 3; }
  map<int32, E> kinds = 4; repeated float unpacked = 5 [packed = false]; string _odd__name = 6;
}
enum E { ZERO = 0; }
message Empty {}
"""

EDITION = """
edition = "2023";
package shop;
option features.enum_type = CLOSED;
message M {
  int32 explicit = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];
  int32 required = 3 [features = { field_presence: LEGACY_REQUIRED }];
  M delimited = 4 [features.message_encoding = DELIMITED];
  repeated int32 expanded = 5 [features.repeated_field_encoding = EXPANDED];
  reserved gone;
}
enum E { ONE = 1; reserved OLD; }
message Empty {}
"""


def in_order(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """With entries of maps, groups and oneofs behind the others."""

    def sort(message: descriptor_pb2.DescriptorProto) -> None:
        groups = {each.type_name.rpartition(".")[2] for each in [*message.field, *message.extension] if each.type == 10}
        message.nested_type.sort(key=lambda each: each.options.map_entry or each.name in groups)
        message.field.sort(key=lambda each: each.HasField("oneof_index") and not each.proto3_optional)
        for each in message.nested_type:
            sort(each)

    groups = [each.type_name for each in file.extension if each.type == 10]
    file.message_type.sort(key=lambda each: f".{file.package}.{each.name}" in groups)
    for each in file.message_type:
        sort(each)
    return file


@pytest.mark.parametrize(
    "files",
    [{"a": PROTO2}, {"a": PROTO3, "b": PROTO2}, {"a": EDITION}],
    ids=["proto2", "proto3", "editions"],
)
def test_protoc_makes_the_same_descriptor_of_a_text(files):
    descriptor_set = compiled(**files)
    message = "shop.orders.Order.Line" if files["a"] is PROTO2 else "shop.Empty"
    printed = proto_files(descriptor_set, message)
    again = compiled(**{each.name.removesuffix(".proto"): each.text for each in printed})
    assert [in_order(each) for each in files_of(again)] == [in_order(each) for each in files_of(descriptor_set)]
    wanted = message_indexes(descriptor_set, message, counts_entries=False)
    assert message_indexes(again, message, counts_entries=True) == wanted


def test_imports_come_first_and_known_ones_are_left_out():
    files = proto_files(compiled(a=PROTO3, b=PROTO2), "shop.M")
    assert [(each.name, each.imports) for each in files] == [("b.proto", ()), ("a.proto", ("b.proto",))]
    assert 'import public "b.proto";\n' in files[1].text


EDITION_WITH_DELIMITED = """edition = "2023"; package p; HEAD
message M {
  extensions 100;
  message Before {}
  message D { int32 b = 1; }
  message After {}
  D d = 1 FEATURE;
}
message Top {}
message Last {}
extend M { Top top = 100 FEATURE; }"""


@pytest.mark.parametrize(
    ("head", "feature"),
    [("", "[features.message_encoding = DELIMITED]"), ("option features.message_encoding = DELIMITED;", "")],
    ids=["field", "file"],
)
def test_incident_a_message_of_a_delimited_field_did_not_count_so_later_ones_had_its_number(head, feature):
    descriptor_set = compiled(EDITION_WITH_DELIMITED.replace("HEAD", head).replace("FEATURE", feature))
    for message, wanted in (("M.Before", (0, 0)), ("M.D", (0, 1)), ("M.After", (0, 2)), ("Top", (1,)), ("Last", (2,))):
        *_, file = proto_files(descriptor_set, f"p.{message}")
        assert message_indexes(descriptor_set, f"p.{message}", counts_entries=False) == wanted
        assert message_indexes(compiled(file.text), f"p.{message}", counts_entries=True) == wanted


def test_groups_of_proto2_are_declared_by_their_fields_and_do_not_count():
    descriptor_set = compiled(
        'syntax = "proto2"; message M { optional group G = 1 { optional int32 a = 1; } message In {} }'
    )
    assert message_indexes(descriptor_set, "M.In", counts_entries=False) == (0, 0)
    with pytest.raises(ConfigError, match="M.G is an entry of a map or a group"):
        message_indexes(descriptor_set, "M.G", counts_entries=False)


def test_map_entries_do_not_count_in_the_indexes_of_a_text():
    descriptor_set = compiled('syntax = "proto3"; message A {} message M { map<int32, int32> m = 1; message In {} }')
    assert message_indexes(descriptor_set, "M.In", counts_entries=True) == (1, 1)
    assert message_indexes(descriptor_set, "M.In", counts_entries=False) == (1, 0)
    with pytest.raises(ConfigError, match=r"^M.MEntry is an entry of a map or a group: give a message$"):
        message_indexes(descriptor_set, "M.MEntry", counts_entries=False)


def test_incident_a_file_of_edition_2024_was_registered_as_text_that_does_not_compile():
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="editions", edition=1001)
    file.message_type.add(name="M")
    with pytest.raises(ConfigError, match="2024"):
        proto_files(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "M")
