"""Bytes of a field's default, for a column that the rows lack."""

from __future__ import annotations

import json
import struct

from spark_kafka_sink.records.sizes import encode_varint
from spark_kafka_sink.schemas.encoding.avro_schema import NO_DEFAULT, AvroField, AvroSchema, Json

_INT_BITS = {"int": 32, "long": 64}


def default_bytes(schema: AvroSchema, default: Json) -> bytes:
    """Raises ``ValueError`` if the default is none of its schema: it says what is wrong."""
    data = _of_union(schema, default) if schema.type == "union" else _of_nested(schema, default)
    if data is None:
        data = _of_number(schema, default)
    if data is None:
        data = _of_text(schema, default)
    if data is None:
        raise ValueError(f"{json.dumps(default)} is no {schema}")
    return data


def _of_nested(schema: AvroSchema, default: Json) -> bytes | None:
    match schema.type, default:
        case "array", list():
            return _block(len(default), b"".join(default_bytes(schema.items, each) for each in default))
        case "map", dict():
            values = schema.values
            entries = (_with_length(key.encode()) + default_bytes(values, each) for key, each in default.items())
            return _block(len(default), b"".join(entries))
        case "record", dict():
            return b"".join(_of_field(field, default) for field in schema.fields)
    return None


def _of_number(schema: AvroSchema, default: Json) -> bytes | None:
    match schema.type, default:
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([default])
        case _, bool():
            return None
        case (("int" | "long"), int()) if -(limit := 1 << _INT_BITS[schema.type] - 1) <= default < limit:
            return encode_varint(default)
        case (("float" | "double"), int() | float()):
            return struct.pack("<f" if schema.type == "float" else "<d", default)
    return None


def _of_text(schema: AvroSchema, default: Json) -> bytes | None:
    match schema.type, default:
        case "string", str():
            return _with_length(default.encode())
        case "bytes", str():
            return _with_length(default.encode("latin-1"))
        case "fixed", str() if len(default) == schema.size:
            return default.encode("latin-1")
        case "enum", str() if default in schema.attributes["symbols"]:
            return encode_varint(schema.attributes["symbols"].index(default))
    return None


def _of_union(schema: AvroSchema, default: Json) -> bytes | None:
    """The default as the first branch that takes it (until Avro 1.11: as the first branch)."""
    for index, branch in enumerate(schema.branches):
        try:
            return encode_varint(index) + default_bytes(branch, default)
        except (ValueError, OverflowError):
            continue
    return None


def _of_field(field: AvroField, default: dict[str, Json]) -> bytes:
    value = default.get(field.name, field.default)
    if value is NO_DEFAULT:
        raise ValueError(f"{json.dumps(default)} lacks {field.name}")
    return default_bytes(field.schema, value)


def _with_length(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _block(count: int, items: bytes) -> bytes:
    return encode_varint(count) + items + b"\0" if count else b"\0"
