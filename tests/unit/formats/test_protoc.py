"""Protobuf schemas that a registry gives as .proto text."""

import base64
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from spark_kafka_sink.schemas.encoding.descriptors import message_descriptor
from spark_kafka_sink.schemas.formats import column_schema
from spark_kafka_sink.schemas.formats import proto_text as protoc
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.formats.proto_text import compile_proto
from spark_kafka_sink.schemas.registry.schema import Schema, SchemaReference
from tests.support.waiting import cpu_ratio
from tests.unit.encoding.protos import files_of
from tests.unit.formats.fake_registry import FakeRegistry
from tests.unit.formats.test_planning import plan, written

MONEY = 'syntax = "proto3"; package common; message Currency { string code = 1; } message Money { int64 units = 1; }'
ORDER = """syntax = "proto3"; package shop;
import "common/money.proto"; import "google/protobuf/timestamp.proto";
message Header {}
message Order { string id = 1; common.Money price = 2; google.protobuf.Timestamp at = 3; }"""
KIND = pa.struct(
    [("id", pa.string()), ("price", pa.struct([("units", pa.int64())])), ("at", pa.timestamp("us", "UTC"))]
)
ROW = {"id": "ä", "price": {"units": -5}, "at": 1_500_000}
WHAT = "Schema 7 of subject s"
LATEST = {"valueFormat": "protobuf", "use_latest_version": "true"}
LINE, UNITS = (pa.struct([(name, pa.int64())]) for name in ("amount", "units"))


@pytest.fixture
def registry():
    registry = FakeRegistry()
    registry.register("money", Schema("PROTOBUF", MONEY))
    reference = SchemaReference("common/money.proto", "money", 1)
    registry.register("t-value", Schema("PROTOBUF", ORDER, (reference,)))
    return registry


@pytest.mark.parametrize("option", [{"use.latest.version": "true"}, {"use.schema.id": "2"}])
def test_text_with_imports_is_compiled_and_its_message_written(registry, option):
    formats = plan(registry, kind=KIND, valueFormat="protobuf", valueMessage="Order", **option)
    [value] = written(formats, [ROW])
    assert value[:7] == b"\0\0\0\0\2\2\2"  # id 2, the message at [1]
    descriptor = message_descriptor(compile_proto(ORDER, (("common/money.proto", MONEY),), WHAT), "shop.Order")
    message = message_factory.GetMessageClass(descriptor).FromString(value[7:])
    assert (message.id, message.price.units, message.at.seconds, message.at.nanos) == ("ä", -5, 1, 500_000_000)


def test_without_a_name_the_first_message_is_written(registry):
    registry.register("t-value", Schema("PROTOBUF", MONEY + " "))
    formats = plan(registry, kind=pa.struct([("code", pa.string())]), **LATEST)
    assert written(formats, [{"code": "EUR"}]) == [b"\0\0\0\0\3\0\x0a\3EUR"]


OF_JAVA = """syntax = "proto3";
package shop;
message Order {
  repeated .shop.Order.TagsEntry tags = 1;
  message TagsEntry {
    option map_entry = true;
    string key = 1;
    int64 value = 2;
  }
  message Line { int64 amount = 1; }
}
"""
"""As Confluent's Java serializer registers ``map<string, int64> tags = 1;``."""


def test_text_of_javas_serializer_has_maps_and_they_count_in_the_numbers_of_messages(registry):
    registry.register("t-value", Schema("PROTOBUF", OF_JAVA))
    tags = pa.struct([("tags", pa.map_(pa.string(), pa.int64()))])
    formats = plan(registry, kind=tags, valueMessage="Order", **LATEST)
    assert written(formats, [{"tags": {"a": 1}}]) == [b"\0\0\0\0\3\0\x0a\5\x0a\1a\x10\1"]
    formats = plan(registry, kind=LINE, valueMessage="shop.Order.Line", **LATEST)
    assert written(formats, [{"amount": 1}]) == [b"\0\0\0\0\3\4\0\2\x08\1"], "[0, 1]"


@pytest.mark.parametrize("edition", ["", 'edition = "2023";'])
def test_text_with_maps_written_out_is_compiled_as_text_with_maps(edition):
    head = edition or 'syntax = "proto3";'
    written_out = OF_JAVA.replace('syntax = "proto3";', head)
    as_map = (
        f"{head} package shop; message Order {{ map<string, int64> tags = 1; message Line {{ int64 amount = 1; }} }}"
    )
    assert compile_proto(written_out, (), WHAT) == compile_proto(as_map, (), WHAT)


class SerializingRegistry(FakeRegistry):
    """Has a schema's text, and gives its descriptor where it is asked for."""

    def latest(self, subject, *, serialized=False):
        return _serialized(super().latest(subject)) if serialized else super().latest(subject)


def _serialized(found):
    (file,) = files_of(compile_proto(found.schema.text, (), WHAT))
    text = base64.b64encode(file.SerializeToString()).decode()
    return found._replace(schema=Schema("PROTOBUF", text))


@pytest.mark.parametrize(
    "also",
    [
        "int64 bitmap_entry = 7;",
        "// option map_entry = true;\n",
        "/* as in\noption map_entry = true; */",
        """string note = 7 [json_name = "option map_entry = true;"];""",
    ],
)
def test_incident_the_letters_map_entry_in_a_text_shifted_the_numbers_of_its_messages(registry, also):
    text = f"""syntax = "proto3"; package shop;
    message Order {{ {also} map<string, int64> tags = 1; message Line {{ int64 amount = 1; }} }}"""
    registry.register("t-value", Schema("PROTOBUF", text))
    formats = plan(registry, kind=LINE, valueMessage="shop.Order.Line", **LATEST)
    assert written(formats, [{"amount": 1}]) == [b"\0\0\0\0\3\4\0\0\x08\1"], "[0, 0]"


@pytest.mark.parametrize(("is_javas", "number"), [(True, b"\2"), (False, b"\0")])
def test_a_descriptor_of_a_registry_has_the_numbers_of_its_text(is_javas, number):
    """Which Java's deserializers read; the descriptor alone does not tell."""
    registry = SerializingRegistry()
    order = "message Order { map<string, int64> tags = 1; message Line { int64 amount = 1; } }"
    as_map = f'syntax = "proto3"; package shop; {order}'
    registry.register("t-value", Schema("PROTOBUF", OF_JAVA if is_javas else as_map))
    assert written(plan(registry, kind=LINE, valueMessage="shop.Order.Line", **LATEST), [{"amount": 1}]) == [
        b"\0\0\0\0\1\4\0" + number + b"\x08\1"
    ]


def test_a_message_of_an_import_is_refused(registry):
    """Its numbers would be those of another message of the schema."""
    said = (
        "^valueMessage: schema 2 of subject t-value only imports common.Money; give one of its own messages, Header, "
    )
    with pytest.raises(FormatError, match=said):
        plan(registry, kind=UNITS, valueMessage="common.Money", **LATEST)


def test_a_schema_that_only_imports_has_the_messages_of_its_import(registry):
    """As Java's ``ProtobufSchema.effectiveFile``."""
    text = 'syntax = "proto3"; import public "common/money.proto";'
    reference = SchemaReference("common/money.proto", "money", 1)
    registry.register("t-value", Schema("PROTOBUF", text, (reference,)))
    formats = plan(registry, kind=UNITS, valueMessage="common.Money", **LATEST)
    assert written(formats, [{"units": 1}]) == [b"\0\0\0\0\3\2\2\x08\1"]


def test_without_protoc_the_error_says_what_to_install(registry, monkeypatch):
    monkeypatch.setattr(column_schema, "find_spec", lambda name: None)
    with pytest.raises(
        FormatError, match=r"Schema 2 of subject t-value .*pip install grpcio-tools on the driver, .* Or give valueD"
    ):
        plan(registry, kind=KIND, **LATEST)


def test_text_that_is_not_valid_is_an_error_with_the_subject_and_protocs_message():
    with pytest.raises(FormatError, match=r"^Schema 7 of subject s cannot be compiled; protoc says: schema\.proto:1:2"):
        compile_proto('syntax = "proto3"; mesage M {}', (), WHAT)
    with pytest.raises(FormatError, match=r"b\.proto: File not found"):
        compile_proto('syntax = "proto3"; import "b.proto"; message M {}', (), WHAT)


@pytest.mark.parametrize("name", ["../b.proto", "/b.proto", "a/../../b.proto", "a//b.proto", "a\\b.proto", "", "\0"])
def test_an_import_outside_the_folder_is_refused(name, monkeypatch):
    monkeypatch.setattr(Path, "write_text", lambda self, *_: pytest.fail(f"wrote {self}"))
    with pytest.raises(FormatError, match=r"^Schema 7 of subject s imports .*, which is not a path of a \.proto file"):
        compile_proto(MONEY, ((name, MONEY),), WHAT)


def test_no_file_of_the_driver_is_read(tmp_path):
    (tmp_path / "secret.proto").write_text(MONEY)
    for path in (tmp_path / "secret.proto", Path("../" * 20, *(tmp_path / "secret.proto").parts[1:])):
        with pytest.raises(FormatError, match="protoc says"):
            compile_proto(f'syntax = "proto3"; import "{path}"; message M {{ common.Money m = 1; }}', (), WHAT)


def test_an_imported_file_with_a_modules_name_is_not_run(tmp_path, monkeypatch):
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')"
    with pytest.raises(FormatError, match="protoc says"):
        compile_proto('import "grpc_tools/protoc.py"; message M {}', (("grpc_tools/protoc.py", code),), WHAT)
    assert not ran.exists()


def test_files_that_registries_know_need_no_reference():
    data = compile_proto(
        'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Date d = 1; }', (), WHAT
    )
    assert message_descriptor(data, "M").fields_by_name["d"].message_type.fields_by_name["year"].number == 1


def test_a_protoc_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(protoc, "_TIMEOUT_S", 0.001)
    with pytest.raises(FormatError, match=r"^Schema 8 of subject s cannot be compiled: protoc did not end within"):
        compile_proto(MONEY, (), "Schema 8 of subject s")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (["X a = 1;"] * 500, r"protoc says: schema\.proto:1:\d+: .a. is already defined in"),
        (["X a = 1;"] * 30_000, "protoc says: .*(bad_alloc|MemoryError)"),
        (["message N {}", *(f"N a{number} = {number};" for number in range(1, 500))], "protoc says: .*File too large"),
    ],
    ids=["messages", "memory", "descriptors"],
)
def test_incident_what_protoc_wrote_of_350_kb_of_text_took_gigabytes_of_the_driver(fields, said):
    """It repeats the long name around the fields in each message, and in each field of the descriptors."""
    text = f'syntax = "proto3"; message {"L" * 60_000} {{ {" ".join(fields)} }}'
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=said) as refused:
            compile_proto(text, (), WHAT)
        assert tracemalloc.get_traced_memory()[1] < 100 * len(text)
    finally:
        tracemalloc.stop()
    assert len(str(refused.value)) < 3_000
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(("begin", "piece"), [("", "\n"), ("", "/* "), ('"', '\\"'), ("'", "\\'")])
def test_incident_a_text_of_many_line_ends_took_time_by_the_square_of_its_length(begin, piece):
    """For eight times the length, the square is 64 times the work."""

    def look(times):
        text = begin + piece * times
        protoc.writes_entries_out(text)
        protoc._mark_map_entries(text)

    assert cpu_ratio(lambda: look(16_000), lambda: look(2_000)) < 30


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("/* option map_entry = true;", False),
        ("/* */ option map_entry = true;", True),
        ('"option map_entry = true;', False),
        ('"a\\"" option map_entry = true;', True),
        ("'a' option  map_entry=true ;", True),
    ],
)
def test_the_option_counts_outside_of_comments_and_strings_only(text, has):
    assert protoc.writes_entries_out(text) == has
