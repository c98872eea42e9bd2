"""The derived Avro schema against Spark's own SchemaConverters."""

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import DecimalType, StructField, StructType, _parse_datatype_string

from spark_kafka_sink.spark.formats import derive_schema
from spark_kafka_sink.spark.schema import SchemaError

pytestmark = pytest.mark.jvm

SCALARS = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz", "interval day to second", "interval hour", "void",
    # Spark 4.0 has no TIME, and to_avro of 4.1 refuses it.
    *(() if pyspark.__version__.startswith(("4.0.", "4.1.")) else ("time(6)", "time(3)")),
)  # fmt: skip

NESTED = (
    "a int, b string not null, c array<int>, d map<string, bigint>",
    "a array<decimal(5, 1)>, b map<string, decimal(38, 18)>, c array<array<decimal(2, 1)>>",
    "f struct<x: int, y: struct<z: decimal(4, 0)> not null> not null",
    "a array<struct<x: int>>, m map<string, struct<x: int, y: array<struct<q: decimal(3, 1)>>>>",
    "a struct<fixed: decimal(3, 1)>, d struct<d: struct<d: decimal(9, 0)>>, topLevelRecord struct<x: int>, A int",
    "a struct<>, b array<void>, c struct<v: void>",
    "`ä` int, `_1` int, `b٣` string",
)

REFUSED = (
    "`a-b` int", "`1a` int", "`٣` int", "`a²` int", "x struct<`a.b`: int>", "m map<int, string>", "v variant",
    "s string collate UTF8_LCASE", "m map<string collate UTF8_LCASE, int>", "a int, a int",
    "a array<struct<x: int, x: int>>",
)  # fmt: skip


@pytest.fixture(scope="module")
def to_avro(spark):
    """The schema that Spark's to_avro derives."""
    jvm = spark.sparkContext._jvm
    converters = getattr(jvm.org.apache.spark.sql.avro, "SchemaConverters$").__getattr__("MODULE$")

    def derived(kind, nullable):
        java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())
        return converters.toAvroType(java_type, nullable, "topLevelRecord", "").toString()

    return derived


def test_a_column_of_any_type_has_the_schema_of_to_avro(to_avro):
    kinds = [_parse_datatype_string(each) for each in (*SCALARS, *NESTED)]
    kinds += [DecimalType(precision, min(precision, 3)) for precision in range(1, 39)]
    kinds += [StructType([StructField("inner", kind, index % 2 == 0)]) for index, kind in enumerate(kinds)]
    for kind in kinds:
        for nullable in (True, False):
            assert derive_schema("value", kind, nullable) == to_avro(kind, nullable), (kind.simpleString(), nullable)


@pytest.mark.parametrize("ddl", REFUSED)
def test_what_to_avro_refuses_is_refused(to_avro, ddl):
    kind = _parse_datatype_string(ddl)
    with pytest.raises(Py4JJavaError):
        to_avro(kind, False)
    with pytest.raises(SchemaError, match="No Avro schema can be derived for column value"):
        derive_schema("value", kind, False)
