"""Arrow types as messages name them: by their names in Spark SQL where they have one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.schemas.encoding.columns import is_any_list

_SPARK_NAMES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "string_view": "string",
    "binary": "binary",
    "large_binary": "binary",
    "binary_view": "binary",
    "date32[day]": "date",
    "null": "void",
    "duration[us]": "interval day to second",
    "time64[ns]": "time",
    "timestamp[us]": "timestamp_ntz",
}


def type_name(kind: pa.DataType) -> str:
    """A type's name in Spark, such as ``array<bigint>``; a type that Spark lacks has Arrow's name."""
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return type_name(kind.value_type)
    if pt.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if pt.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if is_any_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pt.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_timestamp(kind) and kind.tz and kind.unit == "us":
        return "timestamp"
    return _SPARK_NAMES.get(str(kind), str(kind))
