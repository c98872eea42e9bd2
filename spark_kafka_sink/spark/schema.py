"""Which column is what: the rules of Spark's own sink (``KafkaWriter.validateQuery``), checked on the driver."""

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
    """The place of each column among those of an Arrow batch; None where there is none.

    ``topic`` is None when the topic option names the topic of all rows, ``key`` also when the column is of type void.
    """

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None
    timestamp: int | None = None

    @classmethod
    def of(cls, schema: StructType, topic: str | None, timestamp_column: str | None) -> RowLayout:
        """The layout of ``schema`` under the options of these names.

        Column names are case-sensitive, of several with one name the first counts, other columns are left aside.
        Raises SchemaError with Spark's text.
        """
        columns = _Columns(schema)
        topic_place = columns.find("topic", _is_string, "string") if topic is None else None
        if topic is None and topic_place is None:
            raise SchemaError(
                "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
            )
        key = columns.find("key", lambda kind: _is_bytes(kind) or isinstance(kind, NullType), "string or binary")
        value = columns.find("value", _is_bytes, "string or binary")
        if value is None:
            raise SchemaError("Required attribute 'value' not found")
        return cls(
            value=value,
            key=None if key is None or isinstance(schema[key].dataType, NullType) else key,
            topic=topic_place,
            headers=columns.find("headers", _are_headers, "array<struct<key:string,value:binary>>"),
            partition=columns.find("partition", lambda kind: isinstance(kind, IntegerType), "int"),
            timestamp=None if timestamp_column is None else columns.find_timestamp(timestamp_column),
        )


class _Columns:
    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._places: dict[str, int] = {}
        for place, name in enumerate(schema.names):
            self._places.setdefault(name, place)

    def find(self, name: str, fits: Callable[[DataType], bool], desired: str) -> int | None:
        """The place of the column ``name``, None when there is none; SchemaError when its type does not fit."""
        place = self._places.get(name)
        if place is None:
            return None
        kind = self._schema[place].dataType
        if not fits(kind):
            raise SchemaError(f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {desired}")
        return place

    def find_timestamp(self, name: str) -> int:
        place = self._places.get(name)
        if place is None:
            raise SchemaError(
                f"timestampColumn names column {name!r}, which is not there; there are {', '.join(self._places)}"
            )
        kind = self._schema[place].dataType
        if not isinstance(kind, (TimestampType, LongType)):
            raise SchemaError(
                f"timestampColumn {name!r} has unsupported type {kind.simpleString()}. "
                "It must be a timestamp or a bigint (epoch milliseconds)"
            )
        return place


def _is_string(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, (StringType, BinaryType))


def _are_headers(kind: DataType) -> bool:
    """Spark's array of structs, or a map from names to text or bytes."""
    if isinstance(kind, MapType):
        return _is_string(kind.keyType) and _is_bytes(kind.valueType)
    return (
        isinstance(kind, ArrayType)
        and isinstance(kind.elementType, StructType)
        and kind.elementType.names == ["key", "value"]
        and _is_string(kind.elementType[0].dataType)
        and isinstance(kind.elementType[1].dataType, BinaryType)
    )
