"""Schemas: a registry's responses, Avro, Protobuf descriptors and texts."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2

from spark_kafka_sink.schemas.encoding.avro import AvroEncoder
from spark_kafka_sink.schemas.encoding.avro_compatibility import unreadable
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema, with_imports
from spark_kafka_sink.schemas.encoding.descriptors import DECIMAL, META, descriptor_set_of, known_files, message_indexes
from spark_kafka_sink.schemas.encoding.proto_text import proto_files, text_indexes
from spark_kafka_sink.schemas.encoding.protobuf import ProtobufEncoder
from spark_kafka_sink.schemas.formats.protoc import _marked, writes_entries_out
from spark_kafka_sink.schemas.registry.cache import stored_response
from spark_kafka_sink.schemas.registry.schema import (
    Schema,
    SchemaType,
    problem,
    read_object,
    registered_schema,
    request_body,
    schema_of,
)
from tests.unit.encoding.protos import compiled

_COLUMN: Final = pa.struct({
    "id": pa.int64(), "name": pa.string(), "amount": pa.decimal128(10, 2), "tags": pa.list_(pa.string()),
    "counts": pa.map_(pa.string(), pa.int32()), "at": pa.timestamp("us", "UTC"), "line": pa.struct({"x": pa.float64()}),
    "kind": pa.string(), "hash": pa.binary(16),
})  # fmt: skip
_MESSAGE: Final = pa.struct([field for field in _COLUMN if field.name != "amount"])  # Protobuf has no decimals


# -- a registry's responses --


def _registered(data: bytes) -> None:
    found = registered_schema(read_object(data), "subject")
    found.schema.serialized_file()
    request_body(found.schema)


def _looked_up(data: bytes) -> None:
    registered_schema(read_object(data), "subject", Schema(SchemaType.JSON, "{}"))


def _schema(data: bytes) -> None:
    schema_of(read_object(data))


def _problem(data: bytes) -> None:
    _, text = problem(data)
    assert text.isprintable()


def _kept(data: bytes) -> None:
    """A line in which the driver keeps a response."""
    stored_response(read_object(data))


RESPONSES: Final = (_registered, _looked_up, _schema, _problem, _kept)


def response_seeds() -> Sequence[bytes]:
    rules = {"domainRules": [{"name": "encrypt", "type": "ENCRYPT", "mode": "WRITE", "disabled": False}]}
    response: dict[str, Any] = {
        "subject": "t-value", "version": 3, "id": 7, "guid": "6b1f3d5c-2d4e-4f7a-9a51-0a6f6d5c4b3a",
        "schema": '{"type":"record","name":"R","fields":[]}', "schemaType": "AVRO", "ruleSet": rules,
        "references": [{"name": "other", "subject": "other-value", "version": 1}],
    }  # fmt: skip
    kept = {**response, "rules": ["encrypt (ENCRYPT)"], "imports": {"other": response}}
    refused = {"error_code": 42201, "message": "Invalid schema"}
    return [json.dumps(each).encode() for each in (response, kept, refused, {"id": 1})]


# -- Avro --


def _avro(data: bytes) -> None:
    text = data.decode(errors="replace")
    str(AvroSchema.parse(text))
    AvroSchema.parse(text, checks_defaults=False)


def _planned(data: bytes) -> None:
    AvroEncoder.plan(data.decode(errors="replace"), _COLUMN, for_registry=True, checks_defaults=False)


def _compared(data: bytes) -> None:
    text = data.decode(errors="replace")
    unreadable(avro_seeds()[0].decode(), text)
    unreadable(text, avro_seeds()[0].decode())


AVRO: Final = (_avro, _planned, _compared)
AVRO_TOKENS: Final = (
    b'"record"',
    b'"fixed"',
    b'{"type":"array","items":',
    b'"com.shop.Line"',
    b'"logicalType":"decimal"',
)


def avro_import(data: bytes) -> None:
    text = data.decode(errors="replace")
    with_imports(avro_seeds()[0].decode(), {"other": text})
    with_imports(text, {"line": avro_seeds()[1].decode()})


@cache
def avro_seeds() -> Sequence[bytes]:
    line = {"type": "record", "name": "Line", "namespace": "com.shop", "fields": [{"name": "x", "type": "double"}]}
    order = {
        "type": "record", "name": "Order", "namespace": "com.shop", "doc": "an order", "aliases": ["Purchase"],
        "fields": [
            {"name": "id", "type": "long", "default": 0},
            {"name": "name", "type": ["null", "string"], "default": None},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "counts", "type": {"type": "map", "values": "int"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "line", "type": ["null", line], "default": None},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 16}},
            {"name": "next", "type": ["null", "Order"], "default": None},
        ],
    }  # fmt: skip
    return [json.dumps(order).encode(), json.dumps(line).encode(), b'"string"', b'["null","int"]']


# -- Protobuf --


def _messages(data: bytes) -> None:
    text_indexes(data, "M")
    message_indexes(data, "shop.M.Line")


def _printed(data: bytes) -> None:
    proto_files(data, "M")


def _protobuf_plan(data: bytes) -> None:
    ProtobufEncoder.plan(data, "M", _MESSAGE)


def _of_registry(data: bytes) -> None:
    """As the base64 of a file that a registry has serialized."""
    text = b64encode(data).decode()
    descriptor_set_of(text)
    descriptor_set_of(text, imports={"other.proto": text})


DESCRIPTORS: Final = (_messages, _printed, _protobuf_plan, _of_registry)

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


@cache
def descriptor_seeds() -> Sequence[bytes]:
    sets = [compiled(_PROTO3, imports=False), compiled(_PROTO2), known_files([META, DECIMAL])]
    files = [descriptor_pb2.FileDescriptorSet.FromString(each).file[-1] for each in sets]
    return [*sets, *(each.SerializeToString() for each in files)]


def _entries(data: bytes) -> None:
    text = data.decode(errors="replace")
    writes_entries_out(text)


def _marked_text(data: bytes) -> None:
    _marked(data.decode(errors="replace"))


PROTO_TEXTS: Final = (_entries, _marked_text)
PROTO_TOKENS: Final = (b"option map_entry = true;", b"edition =", b"/*", b"*/", b'"', b"//", b"option", b"map_entry")


def proto_text_seeds() -> Sequence[bytes]:
    entry = "message M { repeated E e = 1; message E { option map_entry = true; string key = 1; string value = 2; } }"
    return [_PROTO3.encode(), _PROTO2.encode(), entry.encode(), b'edition = "2023";\n/* a */ message M {}']
