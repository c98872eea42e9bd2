"""The Avro schema of a column without a JVM; tests/spark/test_derived_schema.py compares with Spark's own."""

import json

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StringType, StructField, StructType, VariantType

from spark_kafka_sink.spark.formats import derived_schema
from spark_kafka_sink.spark.schema import SchemaError

INT = IntegerType()


def test_named_types_have_their_path_as_namespace():
    inner = StructType([StructField("price", DecimalType(10, 2), False)])
    kind = StructType([StructField("lines", ArrayType(inner, False), False)])
    (field,) = json.loads(derived_schema("value", kind, False))["fields"]
    record = field["type"]["items"]
    assert (record["namespace"], record["name"]) == ("topLevelRecord", "lines")
    fixed = record["fields"][0]["type"]
    assert (fixed["namespace"], fixed["name"], fixed["size"]) == ("topLevelRecord.lines.price", "fixed", 5)


def test_all_that_avro_has_no_type_or_name_for_is_in_one_error():
    inner = StructType([StructField("a b", INT), StructField("v", VariantType())])
    kind = StructType([StructField("lines", ArrayType(inner)), StructField("x", INT), StructField("x", StringType())])
    with pytest.raises(SchemaError) as raised:
        derived_schema("value", kind, False)
    assert str(raised.value) == (
        "no Avro schema can be derived for column value: change the column, or give valueSchema.\n"
        "- value.lines[].a b: Avro names have letters, digits and _ only, and no digit first\n"
        "- value.lines[].v: Avro has no type for variant\n"
        "- value.x: there is more than one field of this name"
    )
