import pytest
from google.protobuf import descriptor_pb2

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.schemas.formats.proto_text import message_indexes, proto_files
from tests.unit.encoding.protos import compiled, files_of

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
