"""The Avro schema of a column without a JVM; tests/spark/test_derived_schema.py compares with Spark's own."""

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType, VariantType

from spark_kafka_sink.spark.formats import derive_schema
from spark_kafka_sink.spark.schema import SchemaError

INT = IntegerType()


def test_all_that_avro_has_no_type_or_name_for_is_in_one_error():
    inner = StructType([StructField("a b", INT), StructField("v", VariantType())])
    kind = StructType([StructField("lines", ArrayType(inner)), StructField("x", INT), StructField("x", StringType())])
    with pytest.raises(SchemaError) as raised:
        derive_schema("value", kind, False)
    assert str(raised.value) == (
        "no Avro schema can be derived for column value: change the column, or give valueSchema.\n"
        "- value.lines[].a b: Avro names have letters, digits and _ only, and no digit first\n"
        "- value.lines[].v: Avro has no type for variant\n"
        "- value.x: there is more than one field of this name"
    )
