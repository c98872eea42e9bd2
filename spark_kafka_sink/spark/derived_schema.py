"""Derives the Avro schema of a column, letter by letter as Spark's ``to_avro`` (``SchemaConverters.toAvroType``).

A registry that has the schemas of ``to_avro`` therefore gets no new ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from spark_kafka_sink.errors import shown
from spark_kafka_sink.schemas.encoding.avro_schema import is_name
from spark_kafka_sink.spark.schema import SchemaError

_NAME: Final = "topLevelRecord"
_CATALYST_TYPE: Final = "spark.sql.catalyst.type"

# Since Spark 4.1.
_TIME_TYPE: Final[Any] = getattr(types, "TimeType", ())

_TYPES: Final[Mapping[type[DataType], object]] = MappingProxyType(
    {
        NullType: "null",
        BooleanType: "boolean",
        ByteType: "int",
        ShortType: "int",
        IntegerType: "int",
        LongType: "long",
        FloatType: "float",
        DoubleType: "double",
        StringType: "string",
        BinaryType: "bytes",
        DateType: {"type": "int", "logicalType": "date"},
        TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
        TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
    }
)


def derived_schema(column: str, kind: DataType, nullable: bool) -> str:
    """The schema as Avro JSON. Raises ``SchemaError`` with all parts for which Avro has no type or name."""
    faults: list[str] = []
    schema = _Deriving(column, faults).schema(kind, nullable, _NAME, "")
    if faults:
        listed = "\n".join(f"- {shown(fault)}" for fault in faults)
        raise SchemaError(
            f"no Avro schema can be derived for column {column}: change the column, or give {column}Schema.\n{listed}"
        )
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


class _Deriving:
    """Derives the schema of the type at ``path``, which is its name in messages."""

    def __init__(self, path: str, faults: list[str]) -> None:
        self._path = path
        self._faults = faults

    def schema(self, kind: DataType, nullable: bool, name: str, namespace: str) -> object:
        """The schema of a type. ``name``, ``namespace``: those that a record or fixed gets at this place."""
        derived = self._not_null(kind, name, namespace)
        return [derived, "null"] if nullable and not isinstance(kind, NullType) else derived

    def _not_null(self, kind: DataType, name: str, namespace: str) -> object:
        if isinstance(kind, StructType):
            return self._record(kind, name, namespace)
        if isinstance(kind, ArrayType):
            return {
                "type": "array",
                "items": self._in("[]").schema(kind.elementType, kind.containsNull, name, namespace),
            }
        if isinstance(kind, MapType) and _is_string(kind.keyType):
            values = self._in("[]").schema(kind.valueType, kind.valueContainsNull, name, namespace)
            return {"type": "map", "values": values}
        if isinstance(kind, DecimalType):
            return {
                "type": "fixed",
                "name": "fixed",
                "namespace": f"{namespace}.{name}".removeprefix("."),
                "size": _decimal_size(kind.precision),
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        if isinstance(kind, DayTimeIntervalType):
            return {"type": "long", _CATALYST_TYPE: kind.simpleString()}
        if isinstance(kind, _TIME_TYPE):
            return {"type": "long", "logicalType": "time-micros", _CATALYST_TYPE: kind.simpleString()}
        if type(kind) in _TYPES and (_is_string(kind) or not isinstance(kind, StringType)):
            return _TYPES[type(kind)]
        self._faults.append(f"{self._path}: Avro has no type for {kind.simpleString()}")
        return None

    def _record(self, kind: StructType, name: str, namespace: str) -> object:
        within = f"{namespace}.{name}".removeprefix(".")
        fields = []
        for index, field in enumerate(kind):
            inner = self._in(f".{field.name}")
            if not is_name(field.name):
                self._faults.append(f"{inner._path}: Avro names have letters, digits and _ only, and no digit first")
            elif field.name in kind.names[:index]:
                self._faults.append(f"{inner._path}: there is more than one field of this name")
            fields.append(
                {"name": field.name, "type": inner.schema(field.dataType, field.nullable, field.name, within)}
            )
        record = {"type": "record", "name": name, "fields": fields}
        return {"type": "record", "name": name, "namespace": namespace, "fields": fields} if namespace else record

    def _in(self, step: str) -> _Deriving:
        return _Deriving(self._path + step, self._faults)


def _is_string(kind: DataType) -> bool:
    """Whether it is a string without a collation or a length."""
    return type(kind) is StringType and kind == StringType()


def _decimal_size(precision: int) -> int:
    """The fewest bytes that hold every number of ``precision`` digits."""
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8
