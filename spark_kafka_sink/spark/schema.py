"""The meanings of a frame's columns: the rules of Spark's Kafka sink (``KafkaWriter.validateQuery``), checked on the
driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.errors import KafkaError, sanitize
from spark_kafka_sink.schemas.formats.format_options import RULES, ColumnFormat, FormatOptions
from spark_kafka_sink.schemas.registry.schema import Side

_BYTES = (StringType, BinaryType)
_TEXT = "string or binary"
_HEADERS = "array<struct<key:string,value:binary>>"

EncodedFields: TypeAlias = Mapping[Side, StructField]
"""The columns key and value that are not raw."""


class SchemaError(KafkaError, ValueError):
    """The frame's columns cannot be written."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The index of each column in an Arrow batch, None if absent.

    ``topic`` is None, too, if the option topic is set, and ``key`` if the column is of type void.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None

    @classmethod
    def of(
        cls,
        schema: StructType,
        topic: str | None,
        timestamp_column: str | None,
        formats: FormatOptions | None = None,
    ) -> RowLayout:
        """The layout of ``schema`` under the options topic and timestampColumn and the formats (None: raw).

        Column names are case-sensitive; of two with one name the first counts; other columns are ignored. Raises
        ``SchemaError`` with Spark's text.
        """
        topic_index = _find(schema, "topic", (StringType,), "string") if topic is None else None
        if topic is None and topic_index is None:
            raise SchemaError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        key = _find_data(schema, "key", (*_BYTES, NullType), None if formats is None else formats.key)
        value = _find_data(schema, "value", _BYTES, None if formats is None else formats.value)
        if value is None:
            raise SchemaError(f"Required attribute 'value' not found{_instead(schema, 'value')}")
        if key is None and formats is not None and not formats.key.is_raw:
            raise SchemaError(f"keyFormat={formats.key.format.value} needs a column key, which is missing")
        return cls(
            value=value,
            key=None if key is None or isinstance(schema[key].dataType, NullType) else key,
            topic=topic_index,
            headers=_find_headers(schema),
            partition=_find(schema, "partition", (IntegerType,), "int"),
            timestamp=None if timestamp_column is None else _find_timestamp(schema, timestamp_column),
        )


def check_shippable(schema: StructType) -> None:
    """Raises ``SchemaError`` for columns that Spark cannot pass to Python, even if the sink ignores them, because Spark
    passes all columns.
    """
    if twice := next((name for name, count in Counter(schema.names).items() if count > 1), None):
        raise SchemaError(
            f"Spark cannot hand two columns {sanitize(twice)} to Python, even if they are not written. Drop or rename "
            "one, or select only the columns that are written."
        )
    for column in schema:
        kind = column.dataType
        if isinstance(kind, YearMonthIntervalType) or _has_names_twice(kind):
            raise SchemaError(
                f"Spark cannot hand the column {sanitize(column.name)} of type {sanitize(kind.simpleString())} to "
                "Python, even if it is not written. Drop it, or select only the columns that are written."
            )


def _has_names_twice(kind: DataType) -> bool:
    """Whether fields of a struct in the type have the same name."""
    if isinstance(kind, StructType):
        return len({*kind.names}) < len(kind) or any(_has_names_twice(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _has_names_twice(kind.elementType)
    return isinstance(kind, MapType) and (_has_names_twice(kind.keyType) or _has_names_twice(kind.valueType))


def encoded_fields(schema: StructType, layout: RowLayout, formats: FormatOptions) -> EncodedFields:
    indexes = {Side.KEY: layout.key, Side.VALUE: layout.value}
    return {
        side: schema[index] for side, index in indexes.items() if index is not None and not formats.column(side).is_raw
    }


def _find(schema: StructType, name: str, types: tuple[type[DataType], ...], desired: str) -> int | None:
    """The index of the column ``name``, None if absent. Raises ``SchemaError`` for another type."""
    if name not in schema.names:
        return None
    index = schema.names.index(name)
    kind = schema[index].dataType
    if not isinstance(kind, types):
        raise _unsupported_error(name, kind, desired)
    return index


def _find_data(
    schema: StructType, name: str, raw: tuple[type[DataType], ...], column: ColumnFormat | None
) -> int | None:
    """The index of the column key or value. ``raw``: the types that may be written without a format."""
    takes = "bytes" if column is None else RULES[column.format].takes
    if takes == "any":
        return _find(schema, name, (DataType,), "")
    if takes == "struct":
        void = (NullType,) if NullType in raw else ()
        return _find(schema, name, (StructType, *void), "struct")
    return _find(schema, name, raw, _TEXT)


def _find_headers(schema: StructType) -> int | None:
    """The index of the column headers: Spark's array of structs, or a map from strings to strings or bytes."""
    index = _find(schema, "headers", (MapType, ArrayType), _HEADERS)
    kind = None if index is None else schema[index].dataType
    if isinstance(kind, MapType) and not (isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _BYTES)):
        raise _unsupported_error("headers", kind, _HEADERS)
    if isinstance(kind, ArrayType) and not _is_header(kind.elementType):
        raise _unsupported_error("headers", kind, _HEADERS)
    return index


def _is_header(kind: DataType) -> bool:
    return (
        isinstance(kind, StructType)
        and kind.names == ["key", "value"]
        and isinstance(kind[0].dataType, StringType)
        and isinstance(kind[1].dataType, BinaryType)
    )


def _unsupported_error(name: str, kind: DataType, desired: str) -> SchemaError:
    if desired == "struct":  # the type is refused by a format, so the text is not Spark's
        return SchemaError(
            f"The column {name} has the type {sanitize(kind.simpleString())}, but {name}Format takes a struct"
        )
    said = f"{name} attribute unsupported type {sanitize(kind.simpleString())}. {name} must be a(n) {desired}"
    return SchemaError(said + _remedy(name, kind, desired))


def _remedy(name: str, kind: DataType, desired: str) -> str:
    if desired == _TEXT and isinstance(kind, (StructType, ArrayType, MapType)):
        return f". Use to_json({name}), or {name}Format=avro or protobuf"
    if desired == _HEADERS:
        return f". Use {_made_headers(kind)}"
    cast = {_TEXT: "string", "string": "string", "int": "int"}.get(desired)
    return "" if cast is None else f". Use cast({name} AS {cast})"


def _made_headers(kind: DataType) -> str:
    """The expression that turns a column headers of this type into headers, or an example of headers."""
    if isinstance(kind, NullType) or (isinstance(kind, MapType) and _are_atomic(kind.keyType, kind.valueType)):
        return "cast(headers AS map<string,string>)"
    header = kind.elementType if isinstance(kind, ArrayType) else None
    if isinstance(header, StructType) and {"key", "value"} <= {*header.names}:
        key, value = header["key"].dataType, header["value"].dataType
        if _are_atomic(key, value):
            text = "h.value" if isinstance(value, _BYTES) else "cast(h.value AS string)"
            return f"transform(headers, h -> struct(cast(h.key AS string) AS key, cast({text} AS binary) AS value))"
    return "map('name', 'text'), or array(struct('name' AS key, cast('text' AS binary) AS value))"


def _are_atomic(*kinds: DataType) -> bool:
    return all(isinstance(kind, AtomicType) for kind in kinds)


def _instead(schema: StructType, name: str) -> str:
    columns = sanitize(", ".join(dict.fromkeys(schema.names))) or "none"
    return f"; the columns are {columns}{did_you_mean(name, schema.names)}"


def _find_timestamp(schema: StructType, name: str) -> int:
    if name not in schema.names:
        raise SchemaError(f"timestampColumn names a column {name!r}, which is missing{_instead(schema, name)}")
    index = schema.names.index(name)
    kind = schema[index].dataType
    if not isinstance(kind, (TimestampType, LongType)):
        raise SchemaError(
            f"timestampColumn {name!r} has unsupported type {sanitize(kind.simpleString())}. "
            "It must be a timestamp or a bigint (epoch milliseconds)"
        )
    return index
