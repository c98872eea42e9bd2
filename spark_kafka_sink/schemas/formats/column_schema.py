"""Schemas, one class per format: read from options or a registry, registered, and planned as an encoder of a column.

The driver uses them. A worker uses them only for topics whose schema the plan does not have. A further format is a
member of ``Format`` with its rules, a class here, and an encoder.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import ClassVar, Final

import pyarrow as pa

from spark_kafka_sink.errors import ConfigError, listed, sanitize
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema, without_comments
from spark_kafka_sink.schemas.encoding.columns import PlainEncoder
from spark_kafka_sink.schemas.encoding.descriptors import descriptor_set_of, message_descriptor, ordered_files
from spark_kafka_sink.schemas.encoding.encoder import Encoder
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from spark_kafka_sink.schemas.formats.format_options import ColumnFormat, Format, FormatError
from spark_kafka_sink.schemas.formats.proto_text import (
    compile_proto,
    message_indexes,
    message_number,
    proto_files,
    writes_entries_out,
)
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.registry import RegistryOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference


class ColumnSchema(ABC):
    """A schema that is given by options, derived from a column or held by a registry."""

    __slots__ = ()

    is_asked_serialized: ClassVar = False
    """Whether a registry is asked for the parsed schema; see ``Schema.serialized_file``."""

    @classmethod
    @abstractmethod
    def given(cls, column: ColumnFormat, derived: str | None) -> ColumnSchema | None:
        """The schema that options give, or ``derived``; None if the registry's is taken. Raises ``FormatError``."""

    @classmethod
    @abstractmethod
    def registered(cls, column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> ColumnSchema:
        """The schema that a registry holds. Raises ``FormatError``, ``ConfigError``."""

    @property
    @abstractmethod
    def record(self) -> str:
        """The full name of the record or message, or the title of a JSON Schema; "" if it has none."""

    def message_indexes(self, *, by_name: bool = False) -> tuple[int, ...]:
        """The message indexes of a Protobuf schema; ``by_name``: its ``message_number``. Empty for other formats."""
        return ()

    @abstractmethod
    def encoder(self, kind: pa.DataType, *, bare_bytes: bool) -> Encoder:
        """Plans the encoder of a column. Raises ``SchemaMismatchError`` if the column does not fit.

        ``bare_bytes``: see ``RegistryOptions``.
        """

    def encoder_for(self, registry: RegistryOptions, kind: pa.DataType) -> tuple[Encoder, tuple[int, ...]]:
        """The encoder of values that name this schema in a registry, and their message indexes."""
        indexes = self.message_indexes(by_name=registry.single_files)
        return registry.encoder(self.encoder(kind, bare_bytes=registry.bare_bytes), indexes), indexes

    @abstractmethod
    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        """The schema to send to the registry. Registers its imports first, or looks them up unless ``registers``."""


@dataclass(frozen=True, slots=True)
class AvroColumnSchema(ColumnSchema):
    """Avro JSON. ``imports``: name and text of the schemas that a registry's schema refers to."""

    text: str
    imports: tuple[tuple[str, str], ...] = ()

    @classmethod
    def given(cls, column: ColumnFormat, derived: str | None) -> AvroColumnSchema | None:
        text = _given_text(column)
        text = derived if text is None else without_comments(text)  # some registries take none
        return None if text is None else cls(text)

    @classmethod
    def registered(cls, column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> AvroColumnSchema:
        imports = registry.imports(found.schema).items()
        return cls(found.schema.text, tuple((name, each.text) for name, each in imports))

    @property
    def record(self) -> str:
        schema = AvroSchema.parse(self.text, self.imports)
        return str(schema.attributes["name"]) if schema.type == "record" else ""

    def encoder(self, kind: pa.DataType, *, bare_bytes: bool) -> Encoder:
        return plan_avro(self.text, kind, bare_bytes=bare_bytes, imports=self.imports)

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        return Schema(Format.AVRO.name, self.text)


@dataclass(frozen=True, slots=True)
class JsonColumnSchema(ColumnSchema):
    """A JSON Schema. Rows are not compared with it."""

    text: str

    @classmethod
    def given(cls, column: ColumnFormat, derived: str | None) -> JsonColumnSchema | None:
        text = _given_text(column)
        try:
            if text is None or isinstance(json.loads(text), (dict, bool)):
                return None if text is None else cls(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{column.origin} is not JSON: {error}") from error
        raise FormatError(f"{column.origin} is not a JSON Schema, which must be an object.")

    @classmethod
    def registered(cls, column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> JsonColumnSchema:
        return cls(found.schema.text)

    @property
    def record(self) -> str:
        schema = json.loads(self.text)
        return str(schema.get("title") or "") if isinstance(schema, dict) else ""

    def encoder(self, kind: pa.DataType, *, bare_bytes: bool) -> Encoder:
        return PlainEncoder()

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        return Schema(Format.JSON.name, self.text)


@dataclass(frozen=True, slots=True)
class ProtobufColumnSchema(ColumnSchema):
    """A message of ``descriptor_set``, which is a serialized FileDescriptorSet.

    ``counts_entries``: whether the message indexes count the entries of maps. As in Java, they do if a registry's text
    declares the entries as messages (``option map_entry = true``), as the text that Java's own serializers register
    does.
    """

    is_asked_serialized: ClassVar = True

    descriptor_set: bytes
    message: str
    counts_entries: bool = False

    @classmethod
    def given(cls, column: ColumnFormat, derived: str | None) -> ProtobufColumnSchema | None:
        if column.descriptor_file is None:
            return None
        assert column.message is not None
        schema = cls(column.read("DescriptorFile", column.descriptor_file), column.message)
        try:
            schema.message_indexes()  # reads all of it
        except ConfigError as error:
            raise FormatError(f"{column.origin}: {error}") from error
        return schema

    @classmethod
    def registered(
        cls, column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry
    ) -> ProtobufColumnSchema:
        """The message that the options name, or the first one of the file, as in Java."""
        files, serialized = _descriptor_set(column, found, registry)
        main = ordered_files(files)[-1]
        what = f"schema {found.id} of subject {found.subject}"
        if column.message is None and not main.message_type:
            raise FormatError(f"Schema {found.id} of subject {found.subject} has no message.")
        message = column.message or f"{main.package}.{main.message_type[0].name}".removeprefix(".")
        try:
            descriptor = message_descriptor(files, message)
        except ConfigError as error:
            raise FormatError(f"{column.option('Message')} was not found in {what}: {error}.") from error
        if descriptor.file.name != main.name and main.message_type:  # Java: a file that only imports stands for it
            raise FormatError(
                f"{column.option('Message')}: {what} only imports {descriptor.full_name}; give one of its own "
                f"messages, {listed([message.name for message in main.message_type])}."
            )
        schema = cls(files, message)
        counting = replace(schema, counts_entries=True)
        if counting.message_indexes() == schema.message_indexes():
            return schema
        text = registry.by_id(found.id, found.subject).schema.text if serialized else found.schema.text
        return counting if writes_entries_out(text) else schema

    @property
    def record(self) -> str:
        name: str = message_descriptor(self.descriptor_set, self.message).full_name
        return name

    def message_indexes(self, *, by_name: bool = False) -> tuple[int, ...]:
        if by_name:
            return (message_number(self.descriptor_set, self.message),)
        return message_indexes(self.descriptor_set, self.message, counts_entries=self.counts_entries)

    def encoder(self, kind: pa.DataType, *, bare_bytes: bool) -> Encoder:
        return plan_protobuf(self.descriptor_set, self.message, kind)

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        """The schema to send. The subject of an import is its name, as in Java
        (``DefaultReferenceSubjectNameStrategy``)."""
        ask = registry.register if registers else registry.lookup
        references: dict[str, SchemaReference] = {}
        *imported, file = proto_files(self.descriptor_set, self.message)
        for each in imported:
            schema = Schema(Format.PROTOBUF.name, each.text, tuple(references[name] for name in each.imports))
            version = ask(each.name, schema).version
            assert version is not None
            references[each.name] = SchemaReference(each.name, each.name, version)
        return Schema(Format.PROTOBUF.name, file.text, tuple(references[name] for name in file.imports))


SCHEMAS: Final[Mapping[Format, type[ColumnSchema]]] = MappingProxyType(
    {Format.AVRO: AvroColumnSchema, Format.PROTOBUF: ProtobufColumnSchema, Format.JSON: JsonColumnSchema}
)


def registered_column_schema(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> ColumnSchema:
    """The schema that a registry holds. Raises ``InvalidSchemaError``, and ``FormatError`` for a schema of another
    format."""
    if found.schema.type != column.format.name:
        raise FormatError(
            f"Schema {found.id} of subject {found.subject} is of type {sanitize(found.schema.type, 100)}, but "
            f"{column.option('Format')} is {column.format.value}."
        )
    return SCHEMAS[column.format].registered(column, found, registry)


def _given_text(column: ColumnFormat) -> str | None:
    if column.schema_file is None:
        return column.schema
    try:
        return column.read("SchemaFile", column.schema_file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{column.origin} is not UTF-8 at byte {error.start}.") from error


def _descriptor_set(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> tuple[bytes, bool]:
    """The descriptor set of the schema and its imports, and whether the registry serialized it. If not, protoc does."""
    schemas = registry.imports(found.schema, serialized=True)
    imports = {name: each.text for name, each in schemas.items()}
    if all(each.serialized_file() is not None for each in (found.schema, *schemas.values())):
        return descriptor_set_of(found.schema.text, found.subject, imports), True
    what = f"Schema {found.id} of subject {found.subject}"
    if find_spec("grpc_tools") is None:
        raise FormatError(
            f"{what} is .proto text, because this registry returns no descriptors, and protoc is missing: pip install "
            "grpcio-tools on the driver, and with a column topic on the workers too. Or give "
            f"{column.option('DescriptorFile')} and {column.option('Message')}."
        )
    return compile_proto(found.schema.text, tuple(imports.items()), what), False
