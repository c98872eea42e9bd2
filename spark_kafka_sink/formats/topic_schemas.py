"""The schemas that a producer's serializer writes with, by topic: the registry is asked once per subject."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from spark_kafka_sink.encoding.encoder import Encoder
from spark_kafka_sink.formats.column_schema import (
    AvroColumnSchema,
    ColumnSchema,
    Registry,
    registered_column_schema,
)
from spark_kafka_sink.formats.format_options import ColumnFormat, takes_registered
from spark_kafka_sink.formats.plain_encoder import PlainEncoder
from spark_kafka_sink.formats.plan import ColumnPlan, GivenSchema
from spark_kafka_sink.formats.subject_schemas import SubjectSchemas, mismatch_explained, schema_name
from spark_kafka_sink.schema_registry.registry_options import RegistryOptions


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """``prefix``: in front of each encoded value. ``header``: of each record, None without one. ``origin``: for errors,
    as "schema 7 of subject t-value".
    """

    column: ColumnFormat
    schema: ColumnSchema
    origin: str
    prefix: bytes = b""
    header: bytes | None = None
    _encoders: dict[pa.DataType, Encoder] = field(default_factory=dict, compare=False, repr=False)

    def encode(self, array: pa.Array) -> pa.BinaryArray:
        """Prefix and value per row. Raises ``FormatError`` by type, ``UnencodableRowsError`` for rows."""
        encoder = self._encoders.get(array.type)
        if encoder is None:
            with mismatch_explained(self.column, self.origin):
                encoder = self._encoders[array.type] = self.schema.encoder(array.type)
        return encoder.encode(array, self.prefix)


class TopicSchemas:
    """Of keys or of values. ``registry`` None: bare Avro or Protobuf. For one thread at a time."""

    def __init__(self, column: ColumnFormat, options: RegistryOptions | None, registry: Registry | None) -> None:
        self._column = column
        self._options = None if options is None else options.side(column.side)
        self._registry = registry
        self._of_topic: dict[tuple[str, ColumnSchema | None], WrittenSchema] = {}
        self._of_subject: dict[tuple[str, ColumnSchema | None], WrittenSchema] = {}

    def of(self, topic: str, given: ColumnSchema | None) -> WrittenSchema:
        """``given`` None: the registry's. Raises ``RegistryError``, ``FormatError``."""
        found = self._of_topic.get((topic, given))
        if found is None:
            found = self._of_topic[topic, given] = self._ask(topic, given)
        return found

    def _ask(self, topic: str, given: ColumnSchema | None) -> WrittenSchema:
        options, registry, column = self._options, self._registry, self._column
        if options is None or registry is None:
            assert given is not None
            return WrittenSchema(column, given, "its schema")
        record = "" if given is None else given.record
        subject = options.subject_name_strategy.subject(topic, column.side, record)
        if (subject, given) in self._of_subject:
            return self._of_subject[subject, given]
        plan = ColumnPlan(column, pa.null(), record)
        compared = takes_registered(options) and options.strict
        if compared and isinstance(given, AvroColumnSchema):
            plan = replace(plan, compared=given.text)
        elif given is not None and (compared or not takes_registered(options)):
            to_register = given.to_register(registry, registers=options.auto_register)
            # Encoders are made by type, later.
            plan = replace(plan, given=GivenSchema(to_register, PlainEncoder(), given.message_indexes))
        found = SubjectSchemas(plan, options, registry).registered(subject)
        schema = given
        if schema is None or (takes_registered(options) and plan.given is None):
            schema = registered_column_schema(column, found, registry)
        prefix, header = schema_name(found, schema.message_indexes, column.side, options.schema_id_place)
        origin = f"schema {found.id} of subject {subject}"
        written = self._of_subject[subject, given] = WrittenSchema(column, schema, origin, prefix, header)
        return written
