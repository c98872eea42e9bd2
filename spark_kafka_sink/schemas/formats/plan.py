"""The plan of a write's formats, which the driver makes of options and columns and Spark sends to every task.

Planning reads files and asks the registry for the schema of each subject; ``SubjectSchemas`` says how rows are written
with its response. Later plannings of an application add the topics that its tasks have written (``with_topics``) and
the schemas of committed batches (``earlier_schemas``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from spark_kafka_sink.common.config.operator_limits import file_fault
from spark_kafka_sink.errors import ConfigError, KafkaError, RegistryError
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema, unreadable, without_comments
from spark_kafka_sink.schemas.encoding.encoder import Encoder, InvalidSchemaError, SchemaMismatchError
from spark_kafka_sink.schemas.formats.column_schema import (
    AvroColumnSchema,
    ColumnSchema,
    JsonColumnSchema,
    ProtobufColumnSchema,
    registered_column_schema,
)
from spark_kafka_sink.schemas.formats.format_options import (
    ColumnFormat,
    Format,
    FormatError,
    FormatOptions,
)
from spark_kafka_sink.schemas.formats.wire_format import guid_header, id_prefix
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions, SchemaIdPlace, SideOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, Side


class EarlierSchemas(NamedTuple):
    """The schemas of a committed batch that differ from those of the plan.

    ``uses``: subject → schema, for each column. ``fault``: why a replay cannot be encoded with them; None if it can.
    """

    uses: Mapping[Side, Mapping[str, SchemaUse]]
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class FormatPlan:
    """How a write encodes its columns. Picklable: Spark sends it to every task.

    ``columns``: the encoded ones. ``registry``: None for bare Avro or Protobuf. ``earlier``: query → the schemas of
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
        if registry is None:
            return False
        return any(registry.side(side).schema_id_place is SchemaIdPlace.HEADER for side in self.columns)


@dataclass(frozen=True, slots=True)
class FrameColumn:
    """A column of the frame. ``derived``: the Avro schema derived from its type; None if that is not needed."""

    kind: pa.DataType
    derived: str | None = None


def plan_formats(
    options: FormatOptions, frame: Mapping[Side, FrameColumn], topic: str | None, registry: CachedRegistry | None
) -> FormatPlan:
    """Plans the encoded columns, which are those of ``frame``. Raises ``FormatError``.

    ``topic``: None if each row names its topic. ``registry``: None for bare Avro or Protobuf.
    """
    columns = {}
    for side, column in frame.items():
        with _as_format_error():
            columns[side] = _column(options.column(side), column, topic, options.registry, registry)
    return FormatPlan(columns, options.registry)


def derives(options: FormatOptions, side: Side) -> bool:
    """Whether a schema derived from the column is needed: rows are written with it, or it names the subject."""
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
    schema = _given(column, frame)
    origin = _origin(column)
    with mismatch_explained(column, origin):
        plan = ColumnPlan(column, frame.kind, _record(column, schema))
    if options is None or registry is None:
        assert schema is not None
        with mismatch_explained(column, origin):
            return replace(plan, known={"": SchemaUse(schema.encoder(frame.kind, for_registry=False))})
    side = options.side(column.side)
    if side.subject_name_strategy.needs_record and not plan.record:
        raise FormatError(_no_record(column, side.subject_name_strategy.value))
    compared = side.takes_registered and side.strict and frame.derived is None
    if compared and isinstance(schema, AvroColumnSchema):
        with mismatch_explained(column, origin):
            AvroSchema.parse(schema.text)
        plan = replace(plan, compared=schema.text)
    elif schema is not None and (compared or not side.takes_registered):
        with mismatch_explained(column, origin):
            encoder = schema.encoder(frame.kind, for_registry=True)
        to_register = schema.to_register(registry, registers=side.auto_register)
        given = GivenSchema(to_register, encoder, schema.message_indexes, is_derived=frame.derived is not None)
        plan = replace(plan, given=given)
    if side.subject_name_strategy.needs_topic and topic is None:
        return plan
    schemas = SubjectSchemas(plan, side, registry)
    subject = plan.subject(topic or "", side)
    return replace(plan, known={subject: schemas.current(subject)})


def _given(column: ColumnFormat, frame: FrameColumn) -> ColumnSchema | None:
    """The schema that options give or the column derives; None if the registry's is taken."""
    if column.descriptor_file is not None:
        assert column.message is not None
        schema = ProtobufColumnSchema(_read(column, "DescriptorFile", column.descriptor_file), column.message)
        try:
            schema.message_indexes  # noqa: B018 - reads all of it
        except ConfigError as error:
            raise FormatError(f"{_origin(column)}: {error}") from error
        return schema
    text = column.schema
    try:
        if column.schema_file is not None:
            text = _read(column, "SchemaFile", column.schema_file).decode("utf-8-sig")
        if text is not None and column.format is Format.AVRO:
            text = without_comments(text)  # some registries take none
        parsed = None if text is None else json.loads(text)
    except UnicodeDecodeError as error:
        raise FormatError(f"{_origin(column)} is not UTF-8 at byte {error.start}.") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{_origin(column)} is not JSON: {error}") from error
    if text is not None and column.format is Format.JSON:
        if not isinstance(parsed, (dict, bool)):
            raise FormatError(f"{_origin(column)} is not a JSON Schema, which must be an object.")
        return JsonColumnSchema(text)
    text = frame.derived if text is None else text
    return None if text is None else AvroColumnSchema(text)


def _origin(column: ColumnFormat) -> str:
    """What errors call a schema that does not come from the registry."""
    for name, path in (("DescriptorFile", column.descriptor_file), ("SchemaFile", column.schema_file)):
        if path is not None:
            return f"{column.option(name)} {path}"
    return "the schema derived from it" if column.schema is None else column.option("Schema")


def _record(column: ColumnFormat, schema: ColumnSchema | None) -> str:
    """The name of the record for subjects; "" if it has none. Options may name a message without its descriptor."""
    return (column.message or "").removeprefix(".") if schema is None else schema.record


def _read(column: ColumnFormat, option: str, path: str) -> bytes:
    if (fault := file_fault(path)) is not None:
        raise FormatError(f"{column.option(option)} {path} {fault}.")
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise FormatError(f"{column.option(option)} {path} is not a regular file.")  # a pipe would block for ever
        return Path(path).read_bytes()
    except OSError as error:
        raise FormatError(
            f"{column.option(option)} {path} cannot be read on the driver: {error.strerror or error}."
        ) from error


_RECORD_FROM: Final = {
    Format.AVRO: ("Schema", "the schema of a record", " (A nullable struct derives a union.)"),
    Format.PROTOBUF: ("Message", "its full name", ""),
    Format.JSON: ("Schema", "a schema with a title", ""),
}


def _no_record(column: ColumnFormat, strategy: str) -> str:
    side = column.side.value
    option, what, note = _RECORD_FROM[column.format]
    return (
        f"{side}.subject.name.strategy={strategy} needs the name of a record, and nothing names that of the column "
        f"{side}. Give {column.option(option)}, {what}, or use the strategy topic.{note}"
    )


@contextmanager
def _as_format_error() -> Iterator[None]:
    """Raises other errors as ``FormatError``, because Spark passes only a ``PickleError`` on unchanged."""
    try:
        yield
    except FormatError:
        raise
    except (KafkaError, ImportError) as error:
        raise FormatError(str(error)) from error


def with_topics(plan: FormatPlan, topics: Iterable[str], registry: CachedRegistry) -> FormatPlan:
    """The plan of rows that name their topics, with what the registry says of these. Raises ``FormatError``."""
    options = plan.registry
    assert options is not None
    columns = {}
    for side, column in plan.columns.items():
        schemas = SubjectSchemas(column, options.side(side), registry)
        new = sorted({column.subject(topic, options.side(side)) for topic in topics} - column.known.keys())
        with _as_format_error():
            columns[side] = replace(column, known={**column.known, **{each: schemas.current(each) for each in new}})
    return replace(plan, columns=columns)


def earlier_schemas(
    plan: FormatPlan, ids: Sequence[tuple[Side, str, int]], registry: CachedRegistry
) -> EarlierSchemas | None:
    """The schemas of a committed batch; None if the plan has the same. ``ids``: column, subject and schema id."""
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
            use = SubjectSchemas(column, options.side(side), registry).by_id(subject, schema_id)
        except KafkaError as error:
            return EarlierSchemas({}, str(error))
        uses.setdefault(side, {})[subject] = use
    return EarlierSchemas(uses) if uses else None


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
        self._serialized = plan.column.format is Format.PROTOBUF
        self._strict = f"{'latest' if options.schema_id is None else 'id'}.compatibility.strict"

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
        if not options.takes_registered:
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
            faults = unreadable(schema.text, given)
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
