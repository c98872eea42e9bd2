"""Planning of formats on Spark's driver, and the topics of an application that its processes remember.

The formats are in ``spark_kafka_sink.schemas.formats``. This file has what only Spark knows: types of columns, and the
Avro schemas that Spark's ``to_avro`` derives from them.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from spark_kafka_sink.common.recently_used import remember
from spark_kafka_sink.errors import sanitize
from spark_kafka_sink.exactly_once.values import Entry
from spark_kafka_sink.schemas.encoding.avro_schema import is_name
from spark_kafka_sink.schemas.formats.format_options import ColumnFormat, FormatError, FormatOptions
from spark_kafka_sink.schemas.formats.plan import (
    FormatPlan,
    FrameColumn,
    derives,
    earlier_schemas,
    plan_formats,
    with_topics,
)
from spark_kafka_sink.schemas.registry.cache import CachedRegistry, cached_registry
from spark_kafka_sink.schemas.registry.registry import RegistryOptions
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.application import application_name, is_first, shared_file
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, WriterCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.python_process import announce
from spark_kafka_sink.spark.schema import EncodedFields, SchemaError

_BARE = (
    "schema.registry.url is not set, so Avro and Protobuf are written without a schema id, and readers must know the "
    "schema"
)
_AVRO_TEXTS: Final = ('"string"', '["string","null"]')
"""The derived schemas of columns of strings."""

_TEXT = (
    "The column value is a string, so with valueFormat=avro each value is one Avro string. If rows are meant to be "
    "Avro records, give value a struct, without to_json"
)

# PySpark 4.1 makes timestamps of UTC by default.
_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}

_MAX_PLANS: Final = 64

_plans: dict[object, FormatPlan] = {}
"""The plans of this process, because Spark pickles each writer twice, and a query has a writer per micro-batch."""


def plan_column_formats(options: SinkOptions, fields: EncodedFields) -> FormatPlan:
    """The plan of a write. Called when Spark pickles a writer for its tasks. Raises ``FormatError``."""
    formats = options.formats
    assert formats is not None
    cache_key = (application_name(), formats, options.topic, _columns(formats, fields))
    plan = _plans.get(cache_key)
    if plan is None:
        frame = {side: _frame_column(formats, side, field) for side, field in fields.items()}
        registry = None if formats.registry is None else _registry(formats.registry)
        if registry is None and is_first(_BARE):
            announce(_BARE, logging.WARNING)
        value = frame.get(Side.VALUE)
        if value is not None and value.derived in _AVRO_TEXTS and is_first(_TEXT):
            announce(_TEXT, logging.WARNING)
        plan = replace(plan_formats(formats, frame, options.topic, registry), application=application_name())
    if options.topic is None and plan.registry is not None:
        topics = shared_file().get(_topics_key(options, fields)) or []
        plan = with_topics(plan, topics, _registry(plan.registry))
    return remember(_plans, cache_key, plan, _MAX_PLANS)


def learn_topics(options: SinkOptions, fields: EncodedFields, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Asks the registry about topics that tasks have written, so that later plans know them while the registry is down.

    A registry that does not respond is not an error here, because tasks ask again.
    """
    writes = chain.from_iterable(message.writes for message in messages if isinstance(message, KafkaCommitMessage))
    topics = {write.topic for write in writes}
    file, key = shared_file(), _topics_key(options, fields)
    known = file.get(key) or []
    if topics.issubset(known):
        return
    with suppress(FormatError):
        plan = plan_column_formats(options, fields)
        assert plan.registry is not None
        with_topics(plan, topics, _registry(plan.registry))
        file.add(key, sorted(topics.union(known)))


def _topics_key(options: SinkOptions, fields: EncodedFields) -> tuple[str, ...]:
    """The key for an application's topics. It has everything that leads from a topic to its schema, because a write
    with other schemas may have other topics."""
    formats = options.formats
    assert formats is not None
    assert formats.registry is not None
    registry = formats.registry
    schemas = (formats.key, formats.value, *map(registry.side, Side), _columns(formats, fields))
    return ("topics", *registry.scope, repr(schemas))


def _columns(formats: FormatOptions, fields: EncodedFields) -> tuple[object, ...]:
    return tuple((side, field.json(), _files(formats.column(side))) for side, field in fields.items())


def with_earlier_schemas(plan: FormatPlan, entries: Mapping[str, Entry]) -> FormatPlan:
    """The plan with the schemas that replays of batches in the ledger need."""
    if plan.registry is None:
        return plan
    registry = _registry(plan.registry)
    earlier = {}
    for query, entry in entries.items():
        ids = [(Side(side), subject, schema_id) for side, subject, schema_id in entry.schemas]
        if (found := earlier_schemas(plan, ids, registry)) is not None:
            earlier[query] = found
    return replace(plan, earlier=earlier)


def _files(column: ColumnFormat) -> tuple[tuple[int, int], ...]:
    """A key that changes when the column's files do, because a notebook may correct a file and write again."""
    versions = []
    for path in (column.schema_file, column.descriptor_file):
        with suppress(OSError):  # planning says so
            if path is not None:
                found = os.stat(path)
                versions.append((found.st_mtime_ns, found.st_size))
    return tuple(versions)


def _frame_column(formats: FormatOptions, side: Side, field: types.StructField) -> FrameColumn:
    try:
        may_be_null = field.nullable and (formats.registry is None or formats.registry.derives_null)
        derived = derive_schema(side.value, field.dataType, may_be_null) if derives(formats, side) else None
        # Nullability, and the session's time zone and large types, not known here, make no difference to encoders.
        # Arrow takes no array of void without nulls, as array() is. (Spark 3.5 has no method for it.)
        nullable = getattr(field.dataType, "_as_nullable", lambda: field.dataType)()
        kind = to_arrow_type(nullable, **_UTC)
    except SchemaError as error:
        raise FormatError(str(error)) from error
    except (PySparkException, ValueError) as error:
        why = error if isinstance(error, PySparkException) else "map() has no types: cast it to map<string,string>"
        raise FormatError(
            f"The column {side.value} of type {field.dataType.simpleString()} cannot be encoded: {why}"
        ) from error
    return FrameColumn(kind, derived)


def _registry(options: RegistryOptions) -> CachedRegistry:
    return cached_registry(options, application_name(), on_driver=True)


_CATALYST_TYPE: Final = "spark.sql.catalyst.type"

# Since Spark 4.1.
_TIME_TYPE: Final[Any] = getattr(types, "TimeType", ())

_TYPES: Final[Mapping[type[types.DataType], object]] = MappingProxyType({
    types.NullType: "null",
    types.BooleanType: "boolean",
    types.ByteType: "int",
    types.ShortType: "int",
    types.IntegerType: "int",
    types.LongType: "long",
    types.FloatType: "float",
    types.DoubleType: "double",
    types.StringType: "string",
    types.BinaryType: "bytes",
    types.DateType: {"type": "int", "logicalType": "date"},
    types.TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    types.TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
})  # fmt: skip


def derive_schema(column: str, kind: types.DataType, nullable: bool) -> str:
    """The schema as Avro JSON. Raises ``SchemaError`` with all parts for which Avro has no type or name."""
    faults: list[str] = []
    schema = _derived(kind, nullable, column, faults)
    if faults:
        listed = "\n".join(f"- {sanitize(fault)}" for fault in faults)
        raise SchemaError(
            f"No Avro schema can be derived for column {column}. Change the column, or give {column}Schema:\n{listed}"
        )
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _derived(
    kind: types.DataType,
    nullable: bool,
    path: str,
    faults: list[str],
    name: str = "topLevelRecord",
    namespace: str = "",
) -> object:
    """The schema of a type. ``path``: the place, for faults. ``name`` and ``namespace``: the names for a record or
    fixed at this place."""
    derived = _not_null(kind, path, faults, name, namespace)
    return [derived, "null"] if nullable and not isinstance(kind, types.NullType) else derived


def _not_null(kind: types.DataType, path: str, faults: list[str], name: str, namespace: str) -> object:
    if isinstance(kind, types.StructType):
        return _record(kind, path, faults, name, namespace)
    if isinstance(kind, types.ArrayType):
        items = _derived(kind.elementType, kind.containsNull, f"{path}[]", faults, name, namespace)
        return {"type": "array", "items": items}
    if isinstance(kind, types.MapType) and _is_string(kind.keyType):
        values = _derived(kind.valueType, kind.valueContainsNull, f"{path}[]", faults, name, namespace)
        return {"type": "map", "values": values}
    if isinstance(kind, types.DecimalType):
        size = ((10**kind.precision - 1).bit_length() + 8) // 8  # the fewest bytes that hold every number
        decimal = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "fixed", "name": "fixed", "namespace": _join(namespace, name), "size": size, **decimal}
    if isinstance(kind, types.DayTimeIntervalType):
        return {"type": "long", _CATALYST_TYPE: kind.simpleString()}
    if isinstance(kind, _TIME_TYPE):
        return {"type": "long", "logicalType": "time-micros", _CATALYST_TYPE: kind.simpleString()}
    if type(kind) in _TYPES and (_is_string(kind) or not isinstance(kind, types.StringType)):
        return _TYPES[type(kind)]
    faults.append(f"{path}: Avro has no type for {kind.simpleString()}")
    return None


def _record(kind: types.StructType, path: str, faults: list[str], name: str, namespace: str) -> object:
    fields = []
    for index, field in enumerate(kind):
        inner = f"{path}.{field.name}"
        if not is_name(field.name):
            faults.append(f"{inner}: Avro names have letters, digits and _ only, and no digit first")
        elif field.name in kind.names[:index]:
            faults.append(f"{inner}: there is more than one field of this name")
        schema = _derived(field.dataType, field.nullable, inner, faults, field.name, _join(namespace, name))
        fields.append({"name": field.name, "type": schema})
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}


def _join(namespace: str, name: str) -> str:
    return f"{namespace}.{name}".removeprefix(".")


def _is_string(kind: types.DataType) -> bool:
    """Whether it is a string without a collation or a length."""
    return type(kind) is types.StringType and kind == types.StringType()
