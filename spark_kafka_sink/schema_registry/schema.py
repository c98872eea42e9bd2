"""Schemas as a registry keeps them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class SchemaType(Enum):
    """The names of the registry's API."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class SchemaReference(NamedTuple):
    """A schema that another one imports. ``name``: as the import names it."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """``text``: Avro JSON, .proto or JSON Schema."""

    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()


class RegisteredSchema(NamedTuple):
    """A version of a subject. ``guid``: 16 bytes; None from a registry without GUIDs."""

    subject: str
    version: int
    id: int
    schema: Schema
    guid: bytes | None = None
