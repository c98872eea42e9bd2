"""Schemas: a registry's responses, Avro, Protobuf descriptors and texts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema
from spark_kafka_sink.schemas.encoding.descriptors import DECIMAL, META, descriptor_set_of, known_files
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from spark_kafka_sink.schemas.formats.proto_text import (
    _mark_map_entries,
    message_indexes,
    proto_files,
    writes_entries_out,
)
from spark_kafka_sink.schemas.registry import schema
from spark_kafka_sink.schemas.registry.schema import read_object, registered_schema
from tests.fuzz.target import Target
from tests.unit.encoding.protos import compiled

_COLUMN: Final = pa.struct({
    "id": pa.int64(), "name": pa.string(), "amount": pa.decimal128(10, 2), "tags": pa.list_(pa.string()),
    "counts": pa.map_(pa.string(), pa.int32()), "at": pa.timestamp("us", "UTC"), "line": pa.struct({"x": pa.float64()}),
    "kind": pa.string(), "hash": pa.binary(16),
})  # fmt: skip
_MESSAGE: Final = pa.struct([field for field in _COLUMN if field.name != "amount"])  # Protobuf has no decimals


_OF_JSON: Final = schema.Schema("JSON", "{}")


def _registered(data: bytes) -> None:
    found = registered_schema(read_object(data), "subject")
    found.schema.serialized_file()
    schema.request_body(found.schema)


def _problem(data: bytes) -> None:
    _, text = schema.problem(data)
    assert text.isprintable()


def _responses() -> Sequence[str]:
    """The second is a file in which the driver keeps a response."""
    rules = {"domainRules": [{"name": "encrypt", "type": "ENCRYPT", "mode": "WRITE", "disabled": False}]}
    response: dict[str, Any] = {
        "subject": "t-value", "version": 3, "id": 7, "guid": "6b1f3d5c-2d4e-4f7a-9a51-0a6f6d5c4b3a",
        "schema": '{"type":"record","name":"R","fields":[]}', "schemaType": "AVRO", "ruleSet": rules,
        "references": [{"name": "other", "subject": "other-value", "version": 1}],
    }  # fmt: skip
    kept = {**response, "rules": ["encrypt (ENCRYPT)"], "imports": {"other": response}}
    refused = {"error_code": 42201, "message": "Invalid schema"}
    return [json.dumps(each) for each in (response, kept, refused, {"id": 1})]


_LINE: Final = {"type": "record", "name": "Line", "namespace": "com.shop", "fields": [{"name": "x", "type": "double"}]}
_ORDER: Final = {
    "type": "record", "name": "Order", "namespace": "com.shop", "doc": "an order", "aliases": ["Purchase"],
    "fields": [
        {"name": "id", "type": "long", "default": 0},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "line", "type": ["null", _LINE], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 16}},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}  # fmt: skip
_AVRO: Final = (json.dumps(_ORDER), json.dumps(_LINE), '"string"', '["null","int"]')

_PROTO3: Final = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/descriptor.proto";
extend google.protobuf.FieldOptions { string label = 50001; }
message M {
  int64 id = 1; string name = 2 [(label) = "a \\"b\\""]; repeated string tags = 4; map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6; Line line = 7; oneof choice { int32 a = 8; bytes b = 9; } optional bool c = 10;
  Line.Kind kind = 11; bytes hash = 12;
  message Line { double x = 1; enum Kind { A = 0; B = 1; reserved 5 to max; } Kind kind = 2; }
  reserved 100 to 110; reserved "old";
}
"""
_PROTO2: Final = """syntax = "proto2"; package shop;
message M {
  required int64 id = 1; optional string name = 2 [default = "x\\n"]; optional bytes raw = 3 [default = "\\377"];
  optional group Line = 4 { optional double x = 1; } extensions 1000 to max; extend M { optional int32 more = 1000; }
}
service S { rpc Get (M) returns (stream M) { option deprecated = true; } }
"""
_ENTRY: Final = (
    "message M { repeated E e = 1; message E { option map_entry = true; string key = 1; string value = 2; } }"
)


def _descriptors() -> Sequence[bytes]:
    sets = [compiled(_PROTO3, imports=False), compiled(_PROTO2), known_files([META, DECIMAL])]
    files = [descriptor_pb2.FileDescriptorSet.FromString(each).file[-1] for each in sets]
    return [*sets, *(each.SerializeToString() for each in files)]


TARGETS: Final = (
    Target(
        "registry",
        (_registered, lambda data: registered_schema(read_object(data), "subject", _OF_JSON), _problem),
        _responses, (schema.UnreadableResponseError,), is_json=True,
    ),
    Target(
        "avro",
        (
            lambda text: str(AvroSchema.parse(text)), lambda text: plan_avro(text, _COLUMN, bare_bytes=True),
        ),
        lambda: _AVRO, (SchemaMismatchError,),
        (b'"record"', b'"fixed"', b'{"type":"array","items":', b'"com.shop.Line"', b'"logicalType":"decimal"'),
        is_json=True, is_text=True,
    ),
    Target(
        "avro-imports",
        (
            lambda text: AvroSchema.parse(_AVRO[0], [("other", text)]),
            lambda text: AvroSchema.parse(text, [("line", _AVRO[1])]),
        ),
        lambda: _AVRO, (InvalidSchemaError,), is_json=True, is_text=True,
    ),
    Target(
        "descriptors",
        (
            lambda data: message_indexes(data, "M", counts_entries=False),
            lambda data: message_indexes(data, "shop.M.Line", counts_entries=True),
            lambda data: proto_files(data, "M"), lambda data: plan_protobuf(data, "M", _MESSAGE),
            lambda data: descriptor_set_of(b64encode(data).decode()),  # a file that a registry has serialized
            lambda data: descriptor_set_of(text := b64encode(data).decode(), imports={"other.proto": text}),
        ),
        _descriptors, (ConfigError, SchemaMismatchError),
    ),
    Target(
        "proto-texts", (writes_entries_out, _mark_map_entries),
        lambda: [_PROTO3, _PROTO2, _ENTRY, 'edition = "2023";\n/* a */ message M {}'],
        tokens=(b"option map_entry = true;", b"edition =", b"/*", b"*/", b'"', b"//", b"option", b"map_entry"),
        is_text=True,
    ),
)  # fmt: skip
