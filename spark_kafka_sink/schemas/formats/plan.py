"""The plan of a write's formats, which the driver makes of options and columns and Spark sends to every task.

Planning reads files and asks the registry. Later plannings of an application add the topics that its tasks have written
(``with_topics``) and the schemas of committed batches (``earlier_schemas``).
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
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.schemas.encoding.avro_schema import without_comments
from spark_kafka_sink.schemas.formats.column_schema import (
    AvroColumnSchema,
    ColumnSchema,
    JsonColumnSchema,
    ProtobufColumnSchema,
)
from spark_kafka_sink.schemas.formats.format_options import (
    ColumnFormat,
    Format,
    FormatError,
    FormatOptions,
    takes_registered,
)
from spark_kafka_sink.schemas.formats.subject_schemas import (
    ColumnPlan,
    GivenSchema,
    SchemaUse,
    SubjectSchemas,
    mismatch_explained,
)
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions, SchemaIdPlace
from spark_kafka_sink.schemas.registry.schema import Side


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
    return not takes_registered(of_side) or of_side.subject_name_strategy.needs_record


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
    compared = takes_registered(side) and side.strict and frame.derived is None
    if compared and isinstance(schema, AvroColumnSchema):
        with mismatch_explained(column, origin):
            schema.check()
        plan = replace(plan, compared=schema.text)
    elif schema is not None and (compared or not takes_registered(side)):
        with mismatch_explained(column, origin):
            encoder = schema.encoder(frame.kind, for_registry=True)
        to_register = schema.to_register(registry, registers=side.auto_register)
        given = GivenSchema(to_register, encoder, schema.message_indexes, is_derived=frame.derived is not None)
        plan = replace(plan, given=given)
    if side.subject_name_strategy.needs_topic and topic is None:
        return plan
    schemas = SubjectSchemas(plan, side, registry)
    subject = schemas.subject(topic or "")
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
        new = sorted({schemas.subject(topic) for topic in topics} - column.known.keys())
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
