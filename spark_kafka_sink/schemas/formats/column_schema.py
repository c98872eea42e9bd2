"""Schemas, one class per format: what a registry gets, the name of the record, the encoder of a column.

The driver uses them; a worker does only for topics whose schema the plan does not have.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema, with_imports
from spark_kafka_sink.schemas.encoding.descriptors import (
    descriptor_set_of,
    message_descriptor,
    message_indexes,
    ordered_files,
)
from spark_kafka_sink.schemas.encoding.encoder import Encoder
from spark_kafka_sink.schemas.encoding.proto_text import proto_files, text_indexes
from spark_kafka_sink.schemas.formats.format_options import ColumnFormat, Format, FormatError
from spark_kafka_sink.schemas.formats.protoc import compile_proto, has_protoc, writes_entries_out
from spark_kafka_sink.schemas.formats.wire_format import PlainEncoder
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference, SchemaType

_TYPES: Final = {Format.AVRO: SchemaType.AVRO, Format.PROTOBUF: SchemaType.PROTOBUF, Format.JSON: SchemaType.JSON}


class ColumnSchema(ABC):
    """A schema that options give, a column derives or a registry holds."""

    __slots__ = ()

    @property
    @abstractmethod
    def record(self) -> str:
        """The full name of the record or message, or the title of a JSON Schema; "" if it has none."""

    @property
    def message_indexes(self) -> tuple[int, ...]:
        """The message indexes of a Protobuf schema; empty for other formats."""
        return ()

    @abstractmethod
    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        """Plans the encoder of a column. Raises ``SchemaMismatchError`` if the column does not fit.

        ``for_registry``: whether the values name the schema in a registry.
        """

    @abstractmethod
    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        """The schema to send to the registry. Registers its imports first, or looks them up unless ``registers``."""


@dataclass(frozen=True, slots=True)
class AvroColumnSchema(ColumnSchema):
    """Avro JSON without references. ``is_registered``: a registry holds it, so its defaults may be wrong."""

    text: str
    is_registered: bool = False

    @property
    def record(self) -> str:
        schema = AvroSchema.parse(self.text, checks_defaults=False)
        return str(schema.attributes["name"]) if schema.type == "record" else ""

    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        from spark_kafka_sink.schemas.encoding.avro import plan_avro

        return plan_avro(self.text, kind, for_registry=for_registry, checks_defaults=not self.is_registered)

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        return Schema(SchemaType.AVRO, self.text)


@dataclass(frozen=True, slots=True)
class JsonColumnSchema(ColumnSchema):
    """A JSON Schema. Rows are not compared with it."""

    text: str

    @property
    def record(self) -> str:
        schema = json.loads(self.text)
        return str(schema.get("title") or "") if isinstance(schema, dict) else ""

    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        return PlainEncoder()

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        return Schema(SchemaType.JSON, self.text)


@dataclass(frozen=True, slots=True)
class ProtobufColumnSchema(ColumnSchema):
    """A message of ``descriptor_set``, which is a serialized FileDescriptorSet.

    ``counts_entries``: whether the message indexes count the entries of maps. As in Java, they do where a registry's
    text writes the entries out (``option map_entry = true``), as Java's own serializers register it.
    """

    descriptor_set: bytes
    message: str
    counts_entries: bool = False

    @property
    def record(self) -> str:
        name: str = message_descriptor(self.descriptor_set, self.message).full_name
        return name

    @property
    def message_indexes(self) -> tuple[int, ...]:
        if not self.counts_entries:
            return text_indexes(self.descriptor_set, self.message)
        return message_indexes(self.descriptor_set, self.message)

    def encoder(self, kind: pa.DataType, *, for_registry: bool) -> Encoder:
        from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf

        return plan_protobuf(self.descriptor_set, self.message, kind)

    def to_register(self, registry: CachedRegistry, *, registers: bool) -> Schema:
        """The subject of an import is its name, as in Java (``DefaultReferenceSubjectNameStrategy``)."""
        ask = registry.register if registers else registry.lookup
        references: dict[str, SchemaReference] = {}
        *imported, file = proto_files(self.descriptor_set, self.message)
        for each in imported:
            schema = Schema(SchemaType.PROTOBUF, each.text, tuple(references[name] for name in each.imports))
            version = ask(each.name, schema).version
            assert version is not None
            references[each.name] = SchemaReference(each.name, each.name, version)
        return Schema(SchemaType.PROTOBUF, file.text, tuple(references[name] for name in file.imports))


def registered_column_schema(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> ColumnSchema:
    """The schema that a registry holds. Raises ``InvalidSchemaError``; ``FormatError`` if its format is another one."""
    schema = found.schema
    if schema.type is not _TYPES[column.format]:
        raise FormatError(
            f"Schema {found.id} of subject {found.subject} is of type {schema.type.value}, but "
            f"{column.option('Format')} is {column.format.value}."
        )
    if column.format is Format.JSON:
        return JsonColumnSchema(schema.text)
    if column.format is Format.AVRO:
        imports = {name: each.text for name, each in registry.imports(schema).items()}
        return AvroColumnSchema(with_imports(schema.text, imports), is_registered=True)
    return _registered_protobuf(column, found, registry)


def _registered_protobuf(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> ColumnSchema:
    """The message that the options name, or the first one of the file, as in Java."""
    files, serialized = _descriptor_set(column, found, registry)
    main = ordered_files(files)[-1]
    if column.message is None and not main.message_type:
        raise FormatError(f"Schema {found.id} of subject {found.subject} has no message.")
    message = column.message or f"{main.package}.{main.message_type[0].name}".removeprefix(".")
    what = f"schema {found.id} of subject {found.subject}"
    try:
        descriptor = message_descriptor(files, message)
    except ConfigError as error:
        raise FormatError(f"{column.option('Message')} is looked for in {what}: {error}.") from error
    if descriptor.file.name != main.name and main.message_type:  # Java: a file that only imports stands for the import
        raise FormatError(
            f"{column.option('Message')}: {what} only imports {descriptor.full_name}; give one of its own messages, "
            f"{', '.join(each.name for each in main.message_type)}."
        )
    without_entries = ProtobufColumnSchema(files, message)
    with_entries = replace(without_entries, counts_entries=True)
    if with_entries.message_indexes == without_entries.message_indexes:
        return without_entries
    text = registry.by_id(found.id, found.subject).schema.text if serialized else found.schema.text
    return with_entries if writes_entries_out(text) else without_entries


def _descriptor_set(column: ColumnFormat, found: RegisteredSchema, registry: CachedRegistry) -> tuple[bytes, bool]:
    """The descriptor set of the schema and its imports, and whether the registry serialized it. If not, protoc does."""
    schemas = registry.imports(found.schema, serialized=True)
    imports = {name: each.text for name, each in schemas.items()}
    if all(each.serialized_file() is not None for each in (found.schema, *schemas.values())):
        return descriptor_set_of(found.schema.text, found.subject, imports), True
    what = f"Schema {found.id} of subject {found.subject}"
    if not has_protoc():
        raise FormatError(
            f"{what} is .proto text, because this registry returns no descriptors, and protoc is missing: pip install "
            "grpcio-tools on the driver, and with a column topic on the workers. Or give "
            f"{column.option('DescriptorFile')} and {column.option('Message')} too."
        )
    return compile_proto(found.schema.text, imports, what), False
