"""The schema of each subject of a column, as the registry's responses say, and how rows are written with it.

``ColumnPlan`` and the ``SchemaUse`` of each subject are picklable: tasks get them with the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.schemas.encoding.encoder import Encoder, InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.formats.column_schema import AvroColumnSchema, registered_column_schema
from spark_kafka_sink.schemas.formats.format_options import ColumnFormat, Format, FormatError, takes_registered
from spark_kafka_sink.schemas.formats.wire_format import guid_header, id_prefix
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.registry_options import SchemaIdPlace, SideOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, Side

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_MOST_SHOWN: Final = 10

_encoders: dict[tuple[CachedRegistry, ColumnFormat, pa.DataType, Schema], tuple[Encoder, tuple[int, ...]]] = {}
"""The encoders of registered schemas, with their message indexes: planned once per process, for all its tasks."""


class SchemaUse(NamedTuple):
    """How rows of one subject are written.

    ``prefix``: stands in front of the encoded value. ``header``: the value of the header that names the schema; None
    if no header does. ``schema_id``: None without a registry.
    """

    encoder: Encoder
    prefix: bytes = b""
    header: bytes | None = None
    schema_id: int | None = None


class GivenSchema(NamedTuple):
    """The schema that options give or the column derives. If the registry's is written, it was found to be the same."""

    schema: Schema
    encoder: Encoder
    message_indexes: tuple[int, ...] = ()
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the column key or value is encoded.

    ``kind``: the column's type. ``record``: the name of the record, for subjects; "" if it has none. ``given``: None if
    the registry's schema is taken. ``compared``: Avro JSON of the options, whose data the registry's schema must read.
    ``known``: subject → what the registry said in planning; the only key is "" without a registry.
    """

    column: ColumnFormat
    kind: pa.DataType
    record: str = ""
    given: GivenSchema | None = None
    compared: str | None = None
    known: Mapping[str, SchemaUse] = field(default_factory=dict)

    def subject(self, topic: str, options: SideOptions) -> str:
        return options.subject_name_strategy.subject(topic, self.column.side, self.record)


class SubjectSchemas:
    """The schemas of one column by subject. Planning uses it, and tasks do for topics that planning did not know."""

    def __init__(self, plan: ColumnPlan, options: SideOptions, registry: CachedRegistry) -> None:
        self._plan = plan
        self._options = options
        self._registry = registry

    def subject(self, topic: str) -> str:
        return self._plan.subject(topic, self._options)

    def current(self, subject: str) -> SchemaUse:
        """How rows of the subject are written. Raises ``FormatError`` for a schema with rules for writers.

        The options decide whether the schema is registered, looked up, the latest version or the one with an id.
        """
        found, given = _without_rules(self._found(subject)), self._plan.given
        if given is None:
            return self._of_registry(found)
        return self._use(given.encoder, found, given.message_indexes)

    def _found(self, subject: str) -> RegisteredSchema:
        given, options = self._plan.given, self._options
        if not takes_registered(options):
            assert given is not None
            if options.auto_register:
                return self._registered(subject, given)
            return self._registry.lookup(subject, given.schema)
        if options.schema_id is not None:
            found = self._registry.by_id(options.schema_id, subject, serialized=self._serialized)
        else:
            found = self._registry.latest(subject, serialized=self._serialized)
        if given is not None:
            self._check_is(subject, given.schema, found)
        if self._plan.compared is not None:
            self._check_reads(subject, self._plan.compared, found)
        return found

    def by_id(self, subject: str, schema_id: int) -> SchemaUse:
        """How rows are written with the schema of this id, whatever the options say."""
        found = self._registry.by_id(schema_id, subject, serialized=self._serialized)
        return self._of_registry(_without_rules(found))

    @property
    def _serialized(self) -> bool:
        return self._plan.column.format is Format.PROTOBUF

    def _registered(self, subject: str, given: GivenSchema) -> RegisteredSchema:
        """Registers the given schema. If it is derived, an error explains why a registry may find it incompatible."""
        try:
            return self._registry.register(subject, given.schema)
        except RegistryError as error:
            if error.status != _CONFLICT or not given.is_derived:
                raise
            column = self._plan.column
            raise FormatError(
                f"{error} The schema is derived from the column {column.side.value}, so no field has a default: give "
                f"{column.option('Schema')} with a default for each new field."
            ) from error

    def _of_registry(self, found: RegisteredSchema) -> SchemaUse:
        plan = self._plan
        key = (self._registry, plan.column, plan.kind, found.schema)
        if key not in _encoders:
            with mismatch_explained(plan.column, f"schema {found.id} of subject {found.subject}"):
                schema = registered_column_schema(plan.column, found, self._registry)
                encoder = schema.encoder(plan.kind, for_registry=True)
            _encoders[key] = encoder, schema.message_indexes
        encoder, indexes = _encoders[key]
        return self._use(encoder, found, indexes)

    def _use(self, encoder: Encoder, found: RegisteredSchema, indexes: tuple[int, ...]) -> SchemaUse:
        prefix, header = schema_name(found, indexes, self._plan.column.side, self._options.schema_id_place)
        return SchemaUse(encoder, prefix, header, found.id)

    def _check_reads(self, subject: str, given: str, found: RegisteredSchema) -> None:
        """Raises ``FormatError`` if the registry's schema does not read data of the explicit one (Avro, as in Java)."""
        with mismatch_explained(self._plan.column, f"schema {found.id} of subject {subject}"):
            schema = registered_column_schema(self._plan.column, found, self._registry)
            assert isinstance(schema, AvroColumnSchema)
            faults = schema.unreadable(given)
        if faults:
            listed = "".join(f"\n- {fault}" for fault in faults)
            raise FormatError(
                f"{self._to_be_written(found)}, and does not read data of the one that the options give "
                f"for the column {self._plan.column.side.value}. {self._instead}{listed}"
            )

    def _check_is(self, subject: str, given: Schema, found: RegisteredSchema) -> None:
        """Raises ``FormatError`` if the registry's schema is not the explicit one."""
        try:
            same = self._registry.lookup(subject, given)
        except RegistryError as error:
            if error.status != _NOT_FOUND:
                raise
            known_as = f"not under subject {subject}"
        else:
            if same.id == found.id:
                return
            known_as = f"schema {same.id} of subject {subject}"
        raise FormatError(
            f"{self._to_be_written(found)}, but the one that the options give for the column "
            f"{self._plan.column.side.value} is {known_as}. {self._instead}"
        )

    @property
    def _strict(self) -> str:
        return f"{'latest' if self._options.schema_id is None else 'id'}.compatibility.strict"

    def _to_be_written(self, found: RegisteredSchema) -> str:
        return f"{self._strict}: schema {found.id} of subject {found.subject} is to be written"

    @property
    def _instead(self) -> str:
        return f"Leave the options of the schema out, give that one, or set {self._strict}=false."


def _without_rules(found: RegisteredSchema) -> RegisteredSchema:
    """Raises ``FormatError`` for a schema with rules for writers, because the sink carries out none."""
    if found.rules:
        raise FormatError(
            f"Schema {found.id} of subject {found.subject} has rules, such as the encryption of a field, that every "
            f"writer must carry out and the sink does not: {', '.join(found.rules[:_MOST_SHOWN])}. Write it with "
            "Confluent's serializers, or use a version without these rules (disabled rules, migration rules and rules "
            "of mode READ do no harm)."
        )
    return found


def schema_name(
    found: RegisteredSchema, indexes: tuple[int, ...], side: Side, place: SchemaIdPlace
) -> tuple[bytes, bytes | None]:
    """The prefix and the header (or None) by which a record names its schema. ``indexes``: message indexes of Protobuf.

    Raises ``FormatError`` if a header needs a GUID and the registry gave none.
    """
    if place is SchemaIdPlace.PREFIX:
        return id_prefix(found.id, indexes), None
    if found.guid is None:
        raise FormatError(
            f"{side.value}.schema.id.serializer=header: the registry gives schema {found.id} of subject "
            f"{found.subject} no GUID, which the header would name. Use prefix, or a registry that has GUIDs "
            "(Confluent's from 8.0 on)."
        )
    return b"", guid_header(found.guid, indexes)


@contextmanager
def mismatch_explained(column: ColumnFormat, schema: str) -> Iterator[None]:
    """Raises errors of encoders as ``FormatError``. ``schema``: its name in them, as "schema 7 of subject t-value"."""
    try:
        yield
    except InvalidSchemaError as error:
        raise FormatError(f"The column {column.side.value} cannot be encoded: {schema} is wrong: {error}") from error
    except SchemaMismatchError as error:
        mismatches = "\n".join(f"- {each}" for each in error.mismatches)
        raise FormatError(f"The column {column.side.value} does not fit {schema}:\n{mismatches}") from error
