"""Schemas as a registry keeps them."""

from __future__ import annotations

import base64
import binascii
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
    """``text``: Avro JSON, .proto or JSON Schema; see ``serialized_file`` for Protobuf."""

    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()

    def serialized_file(self) -> bytes | None:
        """The FileDescriptorProto, where ``text`` is one in base64; None for other schemas and for .proto text.

        Registries give it for Protobuf where ``serialized`` is asked for and they can. It may lack its name.
        """
        if self.type is not SchemaType.PROTOBUF:
            return None
        try:
            return base64.b64decode(self.text, validate=True)
        except (binascii.Error, ValueError):
            return None


class RegisteredSchema(NamedTuple):
    """A version of a subject.

    ``version``: None for a schema that was asked for by its id. ``guid``: 16 bytes; None from a registry without GUIDs.
    ``rules``: the names of its rules that a writer must carry out, such as the encryption of a field.
    """

    subject: str
    version: int | None
    id: int
    schema: Schema
    guid: bytes | None = None
    rules: tuple[str, ...] = ()
