"""``AvroSerializer``, ``ProtobufSerializer``: the wire format of a schema registry, for ``send`` and ``send_columns``.

Java: ``KafkaAvroSerializer``, ``KafkaProtobufSerializer``. Records are encoded by fastavro and Google's protobuf,
columns as in the sink.
"""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.encoding.avro_schema import AvroSchema
from spark_kafka_sink.encoding.descriptors import (
    descriptor_set_with,
    differing_fields,
    message_class,
    message_descriptor,
)
from spark_kafka_sink.encoding.encoder import SchemaMismatchError
from spark_kafka_sink.encoding.python_values import AvroCheck, check_message
from spark_kafka_sink.errors import ConfigError, SerializationError
from spark_kafka_sink.formats.column_schema import AvroColumnSchema, ColumnSchema, ProtobufColumnSchema
from spark_kafka_sink.formats.format_options import ColumnFormat, Format, takes_registered
from spark_kafka_sink.formats.topic_schemas import TopicSchemas, WrittenSchema
from spark_kafka_sink.formats.wire_format import KEY_HEADER, VALUE_HEADER
from spark_kafka_sink.producer.serializers import MutableHeaders, SerializedColumn
from spark_kafka_sink.records.columns import bytes_column, int32_array, null_mask
from spark_kafka_sink.schema_registry.client import SchemaRegistry
from spark_kafka_sink.schema_registry.registry_options import RegistryOptions, is_registry_option
from spark_kafka_sink.schema_registry.subjects import Side, SubjectNameStrategy

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

_log = logging.getLogger("spark_kafka_sink.producer")


class _SchemaSerializer(ABC):
    """A ``HeadersSerializer`` and ``ColumnSerializer``."""

    format: ClassVar[Format]

    def __init__(self, given: ColumnSchema | None, message: str | None, options: Mapping[str, object] | None) -> None:
        """``given`` None: the registry's, or each record's own."""
        self._given = given
        self._message = message
        self._options = dict(options or {})
        self._header = VALUE_HEADER
        self._schemas: TopicSchemas | None = None
        self._takes_registered = False
        self._lock = threading.Lock()
        """Held while a schema is looked up: callers share the client of the registry."""

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """``config``: options of the registry beside those of the producer; the constructor's precede. Opens nothing.

        Raises ``ConfigError``.
        """
        side, other = (Side.KEY, Side.VALUE) if is_key else (Side.VALUE, Side.KEY)
        options = {
            name: value
            for name, value in {**config, **self._options}.items()
            if is_registry_option(name.lower()) and not name.lower().startswith(f"{other.value}.")
        }
        faults: list[str] = []
        registry = RegistryOptions.parse(options, faults, _producer_config(config), [side])  # type: ignore[arg-type]
        if faults:
            raise ConfigError(faults)
        self._takes_registered = registry is not None and takes_registered(registry.side(side))
        self._check(registry, side)
        if registry is None:
            _log.warning(
                "%s without schema.registry.url: %ss are written bare, and readers must know their schema",
                type(self).__name__, side.value,
            )  # fmt: skip
        client = None if registry is None else SchemaRegistry(registry, SystemClock())
        self._header = KEY_HEADER if is_key else VALUE_HEADER
        self._schemas = TopicSchemas(ColumnFormat(side, self.format, message=self._message), registry, client)

    def serialize(self, topic: str, data: Any, headers: MutableHeaders | None = None) -> bytes | None:
        """None for None: a null key, or a tombstone. ``headers``: get the one that names the schema, where options ask
        for it.

        Raises ``SerializationError`` for the record; ``RegistryError`` and ``FormatError`` for its topic.
        """
        if data is None:
            return None
        written, encoded = self._encoded(topic, data)
        if written.header is not None:
            if headers is None:
                raise SerializationError(f"{type(self).__name__} needs the headers of the record (topic {topic}).")
            headers.append((self._header, written.header))
        return written.prefix + encoded

    def serialize_column(self, topic: str, array: pa.Array) -> SerializedColumn:
        """Null where the row is null. Raises as ``serialize``, and ``UnencodableRowsError`` with all faulty rows."""
        written = self._written(topic, self._given)
        values = written.encode(array)
        if written.header is None:
            return SerializedColumn(values)
        header = bytes_column([written.header, None]).take(int32_array(null_mask(values).astype("int32")))
        return SerializedColumn(values, {self._header: header})

    def close(self) -> None:  # noqa: B027 - holds nothing open
        """Called once, when the producer is closed."""

    @abstractmethod
    def _encoded(self, topic: str, data: Any) -> tuple[WrittenSchema, bytes]:
        """Of one record."""

    def _check(self, registry: RegistryOptions | None, side: Side) -> None:
        """Raises ``ConfigError`` for a schema that nothing gives."""
        if self._given is None and not self._takes_registered:
            raise ConfigError([
                f"{type(self).__name__} needs a schema: give it to the constructor, or set schema.registry.url and "
                "use.latest.version or use.schema.id."
            ])  # fmt: skip
        strategy = SubjectNameStrategy.TOPIC if registry is None else registry.side(side).subject_name_strategy
        if strategy.needs_record and (self._given is None or not self._given.record):
            raise ConfigError([
                f"{side.value}.subject.name.strategy={strategy.value} needs the schema of a record: give it to the "
                f"constructor of {type(self).__name__}, or use the strategy topic."
            ])  # fmt: skip

    def _written(self, topic: str, given: ColumnSchema | None) -> WrittenSchema:
        if self._schemas is None:
            raise SerializationError(f"{type(self).__name__}.configure must be called first; KafkaProducer does.")
        with self._lock:
            return self._schemas.of(topic, given)

    def _refusal(self, topic: str, error: object) -> SerializationError:
        return SerializationError(f"{type(self).__name__} cannot serialize a record for topic {topic}: {error}")


class AvroSerializer(_SchemaSerializer):
    """Dicts (or what a bare schema takes) as fastavro takes them; columns as ``encode_avro`` takes them.

    A dict must have all fields that have no default, and no others. ``timestamp-millis`` and ``timestamp-micros`` take
    a datetime with time zone, ``local-timestamp-…`` one without.
    """

    format = Format.AVRO

    def __init__(self, schema: str | None = None, options: Mapping[str, object] | None = None) -> None:
        """``schema``: JSON; None: the registry's, by ``use.latest.version`` or ``use.schema.id``. ``options``: of the
        registry, by the names of Java's serializer. Raises ``ConfigError``.
        """
        if schema is not None:
            try:
                AvroSchema.parse(schema)
            except SchemaMismatchError as error:
                raise ConfigError([f"AvroSerializer: {error}"]) from error
        super().__init__(None if schema is None else AvroColumnSchema(schema), None, options)
        self._parsed: dict[ColumnSchema, tuple[Any, AvroCheck]] = {}

    def _encoded(self, topic: str, data: Any) -> tuple[WrittenSchema, bytes]:
        from fastavro import schemaless_writer
        from fastavro.validation import validate

        written = self._written(topic, self._given)
        parsed = self._parsed.get(written.schema)
        if parsed is None:
            parsed = self._parsed[written.schema] = _parsed(written.schema)
        schema, check = parsed
        out = BytesIO()
        try:
            validate(data, schema)
            check.check(data)
            schemaless_writer(out, schema, data, strict_allow_default=True)
        except Exception as error:  # whatever a value of the caller raises
            raise self._refusal(topic, error) from error
        return written, out.getvalue()


class ProtobufSerializer(_SchemaSerializer):
    """Messages of generated classes, or dicts as the constructors of these take them; columns as ``encode_protobuf``.

    Without ``message``, each record is written as its own message type, and columns need the registry's. In a dict, a
    datetime must have a time zone.
    """

    format = Format.PROTOBUF

    def __init__(
        self,
        message: type[Message] | str | None = None,
        descriptor_set: bytes | None = None,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """``message``: a generated class; or a name in ``descriptor_set`` or in the registry's schema. ``options``: of
        the registry, by the names of Java's serializer. Raises ``ConfigError``.
        """
        given: ColumnSchema | None = None
        name = message if isinstance(message, str) else None
        if message is not None and name is None:
            given = _own_schema(message.DESCRIPTOR)  # type: ignore[union-attr]
        elif descriptor_set is not None:
            if name is None:
                raise ConfigError(["ProtobufSerializer: descriptor_set needs message, the name of the message in it."])
            given = ProtobufColumnSchema(descriptor_set, message_descriptor(descriptor_set, name).full_name)
        super().__init__(given, given.message if isinstance(given, ProtobufColumnSchema) else name, options)
        self._own: dict[Descriptor, ColumnSchema] = {}
        self._classes: dict[ColumnSchema, type[Message]] = {}
        self._same: set[tuple[Descriptor, ColumnSchema]] = set()

    def serialize_column(self, topic: str, array: pa.Array) -> SerializedColumn:
        if self._given is None and not self._takes_registered:
            raise self._refusal(topic, "columns need the constructor's message")
        return super().serialize_column(topic, array)

    def _check(self, registry: RegistryOptions | None, side: Side) -> None:
        """A record has its own schema."""
        if self._takes_registered or self._given is not None:
            super()._check(registry, side)

    def _encoded(self, topic: str, data: Any) -> tuple[WrittenSchema, bytes]:
        from google.protobuf.message import Message

        if isinstance(data, Message):
            written = self._of_message(topic, data.DESCRIPTOR)
        elif isinstance(data, Mapping):
            if self._given is None and not self._takes_registered:
                raise self._refusal(topic, "a dict needs the constructor's message")
            written = self._written(topic, self._given)
        else:
            raise self._refusal(topic, f"it is a {type(data).__name__}, not a message or a dict")
        try:
            if isinstance(data, Message):
                made = data
            else:
                kind = self._class_of(written.schema)
                check_message(kind.DESCRIPTOR, data)
                made = kind(**data)
            return written, made.SerializeToString(deterministic=True)
        except Exception as error:  # whatever a value of the caller raises
            raise self._refusal(topic, error) from error

    def _of_message(self, topic: str, descriptor: Descriptor) -> WrittenSchema:
        """Raises ``SerializationError`` for a message that readers with the schema would read otherwise."""
        given = self._given
        if given is None and not self._takes_registered:
            given = self._own.get(descriptor)
            if given is None:
                given = self._own[descriptor] = _own_schema(descriptor)
        written = self._written(topic, given)
        if (descriptor, written.schema) not in self._same:
            differences = differing_fields(descriptor, self._class_of(written.schema).DESCRIPTOR)
            if differences:
                raise self._refusal(
                    topic, f"{descriptor.full_name} differs from {written.origin} in {', '.join(differences)}"
                )
            self._same.add((descriptor, written.schema))
        return written

    def _class_of(self, schema: ColumnSchema) -> type[Message]:
        if schema not in self._classes:
            assert isinstance(schema, ProtobufColumnSchema)
            self._classes[schema] = message_class(schema.descriptor_set, schema.message)
        return self._classes[schema]


def _own_schema(descriptor: Descriptor) -> ProtobufColumnSchema:
    return ProtobufColumnSchema(descriptor_set_with(descriptor), descriptor.full_name)


def _parsed(schema: ColumnSchema) -> tuple[Any, AvroCheck]:
    """As fastavro writes with it."""
    from fastavro import parse_schema

    assert isinstance(schema, AvroColumnSchema)
    return parse_schema(json.loads(schema.text)), AvroCheck(AvroSchema.parse(schema.text))


def _producer_config(config: Mapping[str, object]) -> ProducerConfig | None:
    """Of a ``KafkaProducer``, which passes all its options parsed; else None."""
    names = {field.name: field.name.replace("_", ".") for field in fields(ProducerConfig)}
    if not all(name in config for name in names.values()) or isinstance(config["bootstrap.servers"], str):
        return None
    return ProducerConfig(**{field: config[name] for field, name in names.items()})  # type: ignore[arg-type]
