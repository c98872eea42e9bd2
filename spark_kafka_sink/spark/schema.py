"""Which column holds what: the rules of Spark's Kafka sink (``KafkaWriter.validateQuery``), checked on the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from spark_kafka_sink.errors import KafkaError


class SchemaError(KafkaError, ValueError):
    """A frame whose columns cannot be written."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The index of each column in an Arrow batch, None if absent.

    ``topic`` is also None if the option topic is set, ``key`` also if the column is of type void.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None

    @classmethod
    def of(cls, schema: StructType, topic: str | None, timestamp_column: str | None) -> RowLayout:
        """The layout of ``schema`` under the options topic and timestampColumn.

        Column names are case-sensitive; of two with one name the first counts; other columns are ignored. Raises
        ``SchemaError`` with Spark's text.
        """
        topic_index = _find(schema, "topic", _is_string, "string") if topic is None else None
        if topic is None and topic_index is None:
            raise SchemaError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        key = _find(schema, "key", _is_key, "string or binary")
        value = _find(schema, "value", _is_bytes, "string or binary")
        if value is None:
            raise SchemaError("Required attribute 'value' not found")
        return cls(
            value=value,
            key=None if key is None or isinstance(schema[key].dataType, NullType) else key,
            topic=topic_index,
            headers=_find(schema, "headers", _are_headers, "array<struct<key:string,value:binary>>"),
            partition=_find(schema, "partition", _is_int, "int"),
            timestamp=None if timestamp_column is None else _find_timestamp(schema, timestamp_column),
        )


def _find(schema: StructType, name: str, fits: Callable[[DataType], bool], desired: str) -> int | None:
    """The index of the column ``name``, None if absent. Raises ``SchemaError`` if its type does not fit."""
    if name not in schema.names:
        return None
    index = schema.names.index(name)
    kind = schema[index].dataType
    if not fits(kind):
        raise SchemaError(f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {desired}")
    return index


def _find_timestamp(schema: StructType, name: str) -> int:
    if name not in schema.names:
        columns = ", ".join(dict.fromkeys(schema.names))
        raise SchemaError(f"timestampColumn: there is no column {name!r}; the columns are {columns}")
    index = schema.names.index(name)
    kind = schema[index].dataType
    if not isinstance(kind, (TimestampType, LongType)):
        raise SchemaError(
            f"timestampColumn {name!r} has unsupported type {kind.simpleString()}. "
            "It must be a timestamp or a bigint (epoch milliseconds)"
        )
    return index


def _is_string(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_int(kind: DataType) -> bool:
    return isinstance(kind, IntegerType)


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _is_key(kind: DataType) -> bool:
    return _is_bytes(kind) or isinstance(kind, NullType)


def _are_headers(kind: DataType) -> bool:
    """Spark's array of structs, or a map from strings to strings or bytes."""
    if isinstance(kind, MapType):
        return _is_string(kind.keyType) and _is_bytes(kind.valueType)
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and kind.elementType.names == ["key", "value"]
        and _is_string(kind.elementType[0].dataType)
        and isinstance(kind.elementType[1].dataType, BinaryType)
    )
