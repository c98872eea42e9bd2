"""Frames to requests and responses to frames, through kio's generated messages.

Handlers never see a version: they read the request's attributes and return plain nested dicts (``Fields``) that
name every field any version knows. ``encode_response`` keeps the fields of the requested version, fills the others
with their defaults, and turns ints into kio's error codes and durations. Schemas are loaded per
(API, version) at first use: importing all of them takes most of a second.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, Final, TypeAlias, get_args

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.network.api_versions import camel_case
from spark_kafka_sink.network.messages import with_plain_times

Fields: TypeAlias = dict[str, object]
"""A response, or a part of one: field name (kio's) to value; nested messages are dicts, arrays are lists."""

API_KEYS: Final = MappingProxyType({camel_case(name): int(key) for key, name in api_key_map.items()})
"""Every API of Kafka's protocol."""
API_NAMES: Final = MappingProxyType({key: api for api, key in API_KEYS.items()})

_HEADER: Final = struct.Struct(">hhi")
_API_VERSIONS_KEY: Final = 18


class MalformedRequestError(Exception):
    """Bytes that are not a request of a known API and version. A real broker closes the connection."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The start of a request header, which is the same in all versions."""

    api_key: int
    version: int
    correlation_id: int


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as it came in. ``connection``: counted from 1 over the broker's life. ``body``: kio's message."""

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    connection: int
    node: int
    body: Any = field(repr=False)


def read_head(frame: bytes) -> RequestHead:
    if len(frame) < _HEADER.size:
        raise MalformedRequestError(f"a frame of {len(frame)} bytes is too short for a request header")
    return RequestHead(*_HEADER.unpack_from(frame))


def read_request(frame: bytes, head: RequestHead) -> tuple[str | None, Any]:
    """``(client id, kio request)`` of a frame without its length prefix."""
    try:
        schema = load_request_schema(head.api_key, head.version)
        header, header_size = entity_reader(schema.__header_schema__)(frame, 0)
        body, _ = entity_reader(schema)(frame, header_size)
    except Exception as cause:  # kio's native readers raise errors of many types, which all mean the same here
        raise MalformedRequestError(f"API key {head.api_key} v{head.version}: {cause}") from cause
    return header.client_id, body


def encode_response(head: RequestHead, response: Fields, *, version: int | None = None) -> bytes:
    """The whole frame of a response, including its length prefix. ``version``: replaces the request's version (for
    ApiVersions in v0)."""
    schema = with_plain_times(load_response_schema(head.api_key, head.version if version is None else version))
    body = io.BytesIO()
    body.write(struct.pack(">i", head.correlation_id))
    if schema.__flexible__ and head.api_key != _API_VERSIONS_KEY:
        body.write(b"\0")  # no tagged fields in the header; ApiVersions keeps the old header for clients that probe
    entity_writer(schema)(body, build(schema, response))
    payload = body.getvalue()
    return struct.pack(">i", len(payload)) + payload


def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


_CONVERT: Final[Mapping[str, Callable[[Any], object]]] = MappingProxyType(
    {
        "error_code": ErrorCode,
        "timedelta_i32": _milliseconds,
    }
)

_EMPTY: Final[Mapping[str, object]] = MappingProxyType(
    {
        "error_code": ErrorCode.none,
        "string": "",
        "bytes": b"",
        "bool": False,
        "timedelta_i32": timedelta(0),
        "uuid": None,
    }
)


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one field of a kio message is filled from a plain value."""

    name: str
    is_array: bool
    convert: Callable[[Any], object]
    default: object

    def fill(self, values: Mapping[str, object]) -> object:
        if self.name not in values:
            return self.default
        value = values[self.name]
        if not self.is_array:
            return self.convert(value)
        return None if value is None else tuple(map(self.convert, value))  # type: ignore[call-overload]


def build(entity: Any, values: Mapping[str, object]) -> Any:
    """A kio message from plain values: unknown names are left out, missing ones get their defaults."""
    return entity(**{shape.name: shape.fill(values) for shape in _shapes(entity)})


@cache
def _shapes(entity: Any) -> tuple[_Shape, ...]:
    return tuple(_shape(field) for field in fields(entity))


def _shape(field: Field[Any]) -> _Shape:
    parts = set(_flatten(field.type))
    is_array = tuple in parts
    nested = next((part for part in parts if is_dataclass(part)), None)
    kafka_type = field.metadata.get("kafka_type", "")
    if nested is not None:
        convert: Callable[[Any], object] = lambda values: None if values is None else build(nested, values)  # noqa: E731
    else:
        convert = _CONVERT.get(kafka_type, lambda value: value)
    if field.default is not MISSING:
        default: object = field.default
    elif is_array:
        default = ()
    else:
        default = None if NoneType in parts else _EMPTY.get(kafka_type, 0)
    return _Shape(field.name, is_array, convert, default)


def _flatten(annotation: Any) -> Iterator[Any]:
    arguments = [argument for argument in get_args(annotation) if argument is not Ellipsis]
    if not arguments:
        yield annotation
    if getattr(annotation, "__origin__", None) is tuple:
        yield tuple
    for argument in arguments:
        yield from _flatten(argument)
