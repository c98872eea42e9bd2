"""The plan of a write's formats, which the driver makes of options and columns and Spark sends to every task.

Planning reads files and asks the registry for the schema of each subject; ``SubjectSchemas`` says how rows are written
with its response. Later plannings of an application add the topics that its tasks have written (``with_topics``) and
the schemas of committed batches (``earlier_schemas``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import pyarrow as pa

from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.common.recently_used import remember
from spark_kafka_sink.errors import KafkaError, RegistryError
from spark_kafka_sink.schemas.encoding.encoder import Encoder, InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.formats.column_schema import SCHEMAS, registered_column_schema
from spark_kafka_sink.schemas.formats.format_options import RULES, ColumnFormat, Format, FormatError, FormatOptions
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.registry import RegistryOptions, SideOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaIdPlace, Side


class EarlierSchemas(NamedTuple):
    """The schemas of a committed batch that differ from those of the plan.

    ``uses``: subject → schema, for each column. ``fault``: why a replay cannot be encoded with these schemas; None if
    it can.
    """

    uses: Mapping[Side, Mapping[str, SchemaUse]]
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class FormatPlan:
    """The encoding of a write's columns. Picklable: Spark sends it to every task.

    ``columns``: the encoded columns. ``registry``: None for bare Avro or Protobuf. ``earlier``: query → the schemas of
    its last committed batch. ``application``: the id of the application's run.
    """

    columns: Mapping[Side, ColumnPlan]
    registry: RegistryOptions | None = None
    earlier: Mapping[str, EarlierSchemas] = field(default_factory=dict)
    application: str = ""

    @property
    def has_headers(self) -> bool:
        """Whether headers name the schemas of some column."""
        registry = self.registry
        return registry is not None and any(
            registry.side(side).schema_id_place is SchemaIdPlace.HEADER for side in self.columns
        )


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column of the frame. ``derived``: the Avro schema derived from its type; None if that is not needed."""

    kind: pa.DataType
    derived: str | None = None


def plan_formats(
    options: FormatOptions, frame: Mapping[Side, FrameColumn], topic: str | None, registry: CachedRegistry | None
) -> FormatPlan:
    """Plans the encoded columns of ``frame``. Raises ``FormatError``.

    ``topic``: None if each row names its topic. ``registry``: None for bare Avro or Protobuf.
    """
    columns = {}
    for side, each in frame.items():
        column = options.column(side)
        with format_errors(column, column.origin):
            columns[side] = _column(column, each, topic, options.registry, registry)
    return FormatPlan(columns, options.registry)


def derives(options: FormatOptions, side: Side) -> bool:
    """Whether a schema derived from the column is needed, because rows are written with it or it names the subject."""
    column = options.column(side)
    if column.format is not Format.AVRO or column.has_schema:
        return False
    if options.registry is None:
        return True
    of_side = options.registry.side(side)
    return not of_side.takes_registered or of_side.subject_name_strategy.needs_record


def _column(
    column: ColumnFormat,
    frame: FrameColumn,
    topic: str | None,
    options: RegistryOptions | None,
    registry: CachedRegistry | None,
) -> ColumnPlan:
    schema = SCHEMAS[column.format].given(column, frame.derived)
    # Options may name a message without its descriptor.
    record = (column.message or "").removeprefix(".") if schema is None else schema.record
    plan = ColumnPlan(column, frame.kind, record)
    if options is None or registry is None:
        assert schema is not None
        return replace(plan, known={"": SchemaUse(schema.encoder(frame.kind, bare_bytes=False))})
    side = options.side(column.side)
    if side.subject_name_strategy.needs_record and not plan.record:
        name = column.side.value
        raise FormatError(
            f"{name}.subject.name.strategy={side.subject_name_strategy.value} needs the name of a record, but nothing "
            f"names the record of column {name}. Give {RULES[column.format].record.format(name)}"
        )
    compared = side.strict and frame.derived is None
    if schema is not None and (compared or not side.takes_registered):
        encoder, indexes = schema.encoder_for(options, frame.kind)
        to_register = schema.to_register(registry, registers=side.auto_register)
        given = GivenSchema(to_register, encoder, indexes, is_derived=frame.derived is not None)
        plan = replace(plan, given=given)
    if topic is None and side.needs_topic:
        return plan
    subject = plan.subject(topic or "", side)
    return replace(plan, known={subject: SubjectSchemas(plan, options, registry).current(subject, topic or "")})


def with_topics(plan: FormatPlan, topics: Iterable[str], registry: CachedRegistry) -> FormatPlan:
    """The plan of rows that name their topics, with the registry's schemas for these topics. Raises ``FormatError``."""
    options = plan.registry
    assert options is not None
    columns = {}
    for side, column in plan.columns.items():
        schemas = SubjectSchemas(column, options, registry)
        of_topics = {column.subject(topic, options.side(side)): topic for topic in topics}
        with format_errors(column.column, column.column.origin):
            found = {
                new: schemas.current(new, of_topics[new]) for new in sorted(of_topics.keys() - column.known.keys())
            }
            columns[side] = replace(column, known={**column.known, **found})
    return replace(plan, columns=columns)


def earlier_schemas(
    plan: FormatPlan, ids: Sequence[tuple[Side, str, RegistryId]], registry: CachedRegistry
) -> EarlierSchemas | None:
    """The schemas of a committed batch; None if the plan has the same ones. ``ids``: column, subject and schema id."""
    options = plan.registry
    uses: dict[Side, dict[str, SchemaUse]] = {}
    for side, subject, schema_id in ids:
        column = plan.columns.get(side)
        if column is None or options is None:
            continue
        known = column.known.get(subject)
        if known is not None and known.schema_id == schema_id:
            continue
        try:
            use = SubjectSchemas(column, options, registry).by_id(subject, schema_id)
        except KafkaError as error:
            return EarlierSchemas({}, str(error))
        uses.setdefault(side, {})[subject] = use
    return EarlierSchemas(uses) if uses else None


_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_MAX_SHOWN: Final = 10

_MAX_ENCODERS: Final = 1024

_encoders: dict[tuple[CachedRegistry, ColumnFormat, pa.DataType, Schema], tuple[Encoder, tuple[int, ...]]] = {}
"""The encoders of registered schemas, with their message indexes: planned once per process, for all its tasks."""


class SchemaUse(NamedTuple):
    """The schema with which the rows of one subject are written.

    ``prefix``: the bytes in front of the encoded value. ``header``: the value of the header that names the schema; None
    if no header does. ``schema_id``: None without a registry.
    """

    encoder: Encoder
    prefix: bytes = b""
    header: bytes | None = None
    schema_id: RegistryId | None = None


class GivenSchema(NamedTuple):
    """The schema that is given by options or derived from the column. If rows are written with the registry's schema,
    planning has found the two to be the same."""

    schema: Schema
    encoder: Encoder
    message_indexes: tuple[int, ...] = ()
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the column key or value is encoded.

    ``kind``: the column's type. ``record``: the name of the record, for subjects; "" if it has none. ``given``: None if
    the registry's schema is taken. ``known``: subject → the schema that planning found in the registry. Without a
    registry, the only key is "".
    """

    column: ColumnFormat
    kind: pa.DataType
    record: str = ""
    given: GivenSchema | None = None
    known: Mapping[str, SchemaUse] = field(default_factory=dict)

    def subject(self, topic: str, options: SideOptions) -> str:
        return options.subject(topic, self.column.side, self.record)


class SubjectSchemas:
    """The schemas of one column by subject, for planning, and in tasks for topics that planning did not know."""

    def __init__(self, plan: ColumnPlan, options: RegistryOptions, registry: CachedRegistry) -> None:
        self._plan = plan
        self._options = options
        self._side = options.side(plan.column.side)
        self._registry = registry
        self._serialized = SCHEMAS[plan.column.format].is_asked_serialized

    def current(self, subject: str, topic: str) -> SchemaUse:
        """The schema with which rows of the subject are written now. Raises ``FormatError`` for a schema with rules for
        writers.

        The options decide whether the schema is registered, looked up, the latest version or the schema with a given
        id. ``topic``: "" if each row names its topic.
        """
        found, given = _without_rules(self._find(subject, topic)), self._plan.given
        if given is None:
            return self._of_registry(found)
        return self._use(given.encoder, found, given.message_indexes)

    def _find(self, subject: str, topic: str) -> RegisteredSchema:
        given, options = self._plan.given, self._side
        if not options.takes_registered:
            assert given is not None
            if options.auto_register:
                return self._register(subject, given, topic)
            return self._registry.lookup(subject, given.schema)
        if options.schema_id is not None:
            found = self._registry.by_id(options.schema_id, subject, serialized=self._serialized)
        else:
            found = self._registry.latest(subject, serialized=self._serialized)
        if given is not None:
            self._check_is(subject, given.schema, found)
        return found

    def by_id(self, subject: str, schema_id: RegistryId) -> SchemaUse:
        """The use of the schema with this id, for any options."""
        found = self._registry.by_id(schema_id, subject, serialized=self._serialized)
        return self._of_registry(_without_rules(found))

    def _register(self, subject: str, given: GivenSchema, topic: str) -> RegisteredSchema:
        """Registers the given schema. If it is derived, an error explains why a registry may find it incompatible."""
        try:
            return self._registry.register(subject, given.schema, topic)
        except RegistryError as error:
            if error.status != _CONFLICT or not given.is_derived:
                raise
            column = self._plan.column
            raise FormatError(
                f"{error} The schema is derived from the column {column.side.value}, so no field has a default: give "
                f"{column.option('Schema')} with a default for each new field. If a field's type has "
                "changed, cast it back or write to another topic."
            ) from error

    def _of_registry(self, found: RegisteredSchema) -> SchemaUse:
        plan = self._plan
        key = (self._registry, plan.column, plan.kind, found.schema)
        known = _encoders.get(key)
        if known is None:
            with format_errors(plan.column, f"schema {found.id} of subject {found.subject}"):
                schema = registered_column_schema(plan.column, found, self._registry)
                known = schema.encoder_for(self._options, plan.kind)
        encoder, indexes = remember(_encoders, key, known, _MAX_ENCODERS)
        return self._use(encoder, found, indexes)

    def _use(self, encoder: Encoder, found: RegisteredSchema, indexes: tuple[int, ...]) -> SchemaUse:
        prefix, header = self._options.schema_name(found, indexes, self._plan.column.side)
        return SchemaUse(encoder, prefix, header, found.id)

    def _check_is(self, subject: str, given: Schema, found: RegisteredSchema) -> None:
        """Raises ``FormatError`` if the registry's schema is not the schema that options give."""
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
        strict = f"{'latest' if self._side.schema_id is None else 'id'}.compatibility.strict"
        raise FormatError(
            f"{strict}: schema {found.id} of subject {subject} is to be written for the column "
            f"{self._plan.column.side.value}, but the one that the options give is {known_as}. Leave the options of "
            f"the schema out, give that one, or set {strict}=false."
        )


def _without_rules(found: RegisteredSchema) -> RegisteredSchema:
    """Raises ``FormatError`` for a schema with rules for writers, because the sink does not carry out rules."""
    if found.rules:
        raise FormatError(
            f"Schema {found.id} of subject {found.subject} has rules, such as the encryption of a field, that every "
            f"writer must carry out and the sink does not: {', '.join(found.rules[:_MAX_SHOWN])}. Write it with "
            "Confluent's serializers, or use a version without these rules (disabled rules, migration rules and rules "
            "of mode READ do no harm)."
        )
    return found


@contextmanager
def format_errors(column: ColumnFormat, schema: str) -> Iterator[None]:
    """Raises other errors as ``FormatError``, because Spark passes only a ``PickleError`` on unchanged.

    ``schema``: its name in errors of encoders, as "schema 7 of subject t-value".
    """
    try:
        yield
    except FormatError:
        raise
    except InvalidSchemaError as error:
        raise FormatError(f"The column {column.side.value} cannot be encoded: {schema} is wrong: {error}") from error
    except SchemaMismatchError as error:
        mismatches = "\n".join(f"- {mismatch}" for mismatch in error.mismatches)
        raise FormatError(f"The column {column.side.value} does not fit {schema}:\n{mismatches}") from error
    except KafkaError as error:
        raise FormatError(str(error)) from error
