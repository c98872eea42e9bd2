"""The JSON of rows that could not be encoded, against Spark's own ``to_json``."""

import json

import pyarrow as pa
import pyspark
import pytest

from spark_kafka_sink.spark.encode_formats import json_column

pytestmark = pytest.mark.jvm

_SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))

VALUES = (
    "true", "1Y", "-7S", "42", "-9223372036854775808L", "1.50BD", "1e-7BD", "cast(0 as decimal(38,20))", "X'00FF'",
    r"""'ü "100 %"\\ \n\t\u0001/😀'""", "cast(X'61FF62E282' as string)", "cast('x' as char(3))",
    "cast('x' as varchar(3))", "cast(null as int)", "null", "array()", "array(1, null)", "struct(cast(null as int) n)",
    "struct(array(struct(1 a)) b)", "map()", "map('a', 1, 'b', null)", "map(1, 'x')", "map(true, 1.50BD)",
    "map(date'2026-01-02', 1)",
    "map(timestamp'2026-01-02 03:04:05', 1)", "map(interval '1' day, 1)", "date_add(date'9999-12-31', 1000000)",
    "interval '-1 02:03:04.5' day to second", "interval '100 00:00:00.000001' day to second",
    *(("""parse_json('{"a":[1.5,null,"x"],"b":true}')""",) if _SPARK >= (4, 0) else ()),
    *(("time'12:13:10'", "time'00:00:00.000001'") if _SPARK >= (4, 2) else ()),  # 4.1's to_json lacks it
)  # fmt: skip

_MOMENTS = (
    "2026-01-02 03:04:05.123456", "2026-07-02 23:04:05", "1850-06-01", "1582-10-15", "1582-10-04 12:00:00",
    "0001-01-01", "-0044-03-15", "9999-12-31 23:59:59.999999", "+10000-02-29",
)  # fmt: skip
_MOST, _LEAST = 2**63 - 1, -(2**63)
TIMES = (
    *(f"timestamp_micros({each})" for each in (-1, _MOST, _LEAST)),
    *(f"cast('{each}' as {kind})" for each in _MOMENTS for kind in ("timestamp", "timestamp_ntz", "date")),
)

_NUMBERS = ("'NaN'", "'Infinity'", "'-Infinity'", "-0.0D", "1.1D", "1e23D", "1e-7D", "4.9e-324D", "12345678.9D")
FLOATS = tuple(f"cast({each} as {kind})" for each in _NUMBERS for kind in ("double", "float"))


def written(batches):
    for batch in batches:
        columns = [json_column(column).cast(pa.string()) for column in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def texts(spark, values):
    """Each value in a struct, as JSON of Spark and of a dead letter."""
    frame = spark.range(1).selectExpr(*(f"struct({value} as v) as c{index}" for index, value in enumerate(values)))
    expected = frame.selectExpr(*(f"to_json({name})" for name in frame.columns)).first()
    found = frame.mapInArrow(written, ", ".join(f"{name} string" for name in frame.columns)).first()
    return zip(values, expected, found, strict=True)


@pytest.mark.parametrize("zone", ["UTC", "GMT+8", "UTC-03:30", "PST", "Z", "Europe/Berlin"])
def test_a_dead_letter_is_what_to_json_writes(spark, zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for value, expected, found in texts(spark, (*VALUES, *TIMES) if zone == "UTC" else TIMES):
            assert found == expected, value
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_floating_point_numbers_are_equal_if_not_by_character(spark):
    for value, expected, found in texts(spark, FLOATS):
        assert json.loads(found, parse_constant=str) == json.loads(expected, parse_constant=str), value
