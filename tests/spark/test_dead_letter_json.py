"""The JSON of rows that could not be encoded: Spark's ``from_json`` reads the row."""

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.functions import expr, from_json, lit
from pyspark.sql.types import StructType

from spark_kafka_sink.spark.encode_formats import json_column

pytestmark = pytest.mark.jvm

_SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))

VALUES = (
    "true", "1Y", "-7S", "42", "-9223372036854775808L", "1.50BD", "1e-7BD", "cast(0 as decimal(38,20))", "X'00FF'",
    r"""'ü "100 %"\\ \n\t\u0001/😀'""", "cast('x' as char(3))", "cast('x' as varchar(3))", "cast(null as int)",
    "array()", "array(1, null)", "struct(cast(null as int) n)", "struct(array(struct(1 a)) b)",
    "map('a', 1, 'b', null)",
    "interval '-1 02:03:04.5' day to second", "interval '100 00:00:00.000001' day to second", "timestamp_micros(-1)",
    *(("""parse_json('{"a":[1.5,null,"x"],"b":true}')""",) if _SPARK >= (4, 0) else ()),
    *(("time'12:13:10'", "time'00:00:00.000001'") if _SPARK >= (4, 2) else ()),
)  # fmt: skip

_MOMENTS = (
    "2026-01-02 03:04:05.123456", "2026-07-02 23:04:05", "1850-06-01", "1582-10-15", "1582-10-04 12:00:00",
    "0001-01-02 12:00:00", "9999-12-31 08:00:00.999999",
)  # fmt: skip
TIMES = tuple(f"cast('{each}' as {kind})" for each in _MOMENTS for kind in ("timestamp", "timestamp_ntz", "date"))

_NUMBERS = ("'NaN'", "'Infinity'", "'-Infinity'", "-0.0D", "1.1D", "1e23D", "1e-7D", "4.9e-324D", "12345678.9D")
FLOATS = tuple(f"cast({each} as {kind})" for each in _NUMBERS for kind in ("double", "float"))

BEYOND = (
    "date_add(date'9999-12-31', 1000000)", "timestamp_micros(9223372036854775807)", "cast(X'61FF62' as string)",
    "map()", "map(1, 'x')", "map(date'2026-01-02', 1)", "null",
)  # fmt: skip
"""Values that ``from_json`` does not read as they were."""


def written(batches):
    for batch in batches:
        columns = [json_column(column).cast(pa.string()) for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def texts(spark, values):
    """Each value in a struct with a second field: its type, and the JSON of a dead letter."""
    frame = spark.range(1).selectExpr(
        *(f"struct({value} as v, 7 as n) as c{index}" for index, value in enumerate(values))
    )
    found = frame.mapInArrow(written, ", ".join(f"{name} string" for name in frame.columns)).first()
    return zip(values, (field.dataType for field in frame.schema), found, strict=True)


@pytest.mark.parametrize("zone", ["UTC", "GMT+8", "PST"])
def test_from_json_with_the_rows_schema_reads_a_dead_letter(spark, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        cases = list(texts(spark, (*VALUES, *TIMES, *FLOATS)))
        same = [
            expr(f"to_json(r{index}) = to_json(struct({value} as v, 7 as n))")
            if value.startswith(("map", "parse_json"))  # which cannot be compared
            else expr(f"r{index}.v <=> {value} and r{index}.n = 7")
            for index, (value, _, _) in enumerate(cases)
        ]
        read = spark.range(1).select(
            *(from_json(lit(text), kind).alias(f"r{index}") for index, (_, kind, text) in enumerate(cases))
        )
        for (value, _, text), is_same in zip(cases, read.select(*same).first(), strict=True):
            assert is_same, (value, text)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_a_value_that_json_does_not_have_does_not_hide_the_rest_of_its_row(spark):
    for value, _, text in texts(spark, BEYOND):
        read = from_json(lit(text), StructType.fromDDL("n int"))
        assert spark.range(1).select(read.n).first()[0] == 7, (value, text)
