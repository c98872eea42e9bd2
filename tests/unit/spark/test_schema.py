"""Which column is what, and the texts of Spark's own sink for a frame that cannot be written."""

import pytest
from pyspark.sql import types as t

from spark_kafka_sink.spark.schema import RowLayout, SchemaError

STRING, BINARY, INT = t.StringType(), t.BinaryType(), t.IntegerType()
HEADER = t.StructType([t.StructField("key", STRING), t.StructField("value", BINARY)])


def schema(*columns, **named):
    return t.StructType([t.StructField(name, kind) for name, kind in (*columns, *named.items())])


def layout(frame, topic="t", timestamp_column=None):
    return RowLayout.of(frame, topic, timestamp_column)


def fault(frame, topic="t", timestamp_column=None):
    with pytest.raises(SchemaError) as raised:
        RowLayout.of(frame, topic, timestamp_column)
    return str(raised.value)


def test_columns_are_found_by_name_wherever_they_stand():
    frame = schema(
        x=t.DateType(),
        partition=INT,
        headers=t.ArrayType(HEADER),
        value=BINARY,
        topic=STRING,
        key=STRING,
        at=t.TimestampType(),
    )
    assert layout(frame, None, "at") == RowLayout(value=3, key=5, topic=4, partition=1, headers=2, timestamp=6)


def test_a_frame_without_value_is_refused():
    assert fault(schema(key=STRING)) == "Required attribute 'value' not found; the columns are key"
    assert fault(schema()) == "Required attribute 'value' not found; the columns are none"


def test_names_are_case_sensitive():
    assert fault(schema(Value=STRING)) == (
        "Required attribute 'value' not found; the columns are Value; did you mean Value?"
    )
    assert layout(schema(value=STRING, Key=t.DoubleType())) == RowLayout(value=0)


def test_a_frame_without_topic_needs_the_option():
    assert fault(schema(value=STRING), topic=None) == (
        "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
    )


def test_of_two_columns_with_one_name_the_first_counts():
    assert layout(schema(("value", STRING), ("value", INT))) == RowLayout(value=0)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("value", INT, "int. value must be a(n) string or binary. Use cast(value AS string)"),
        ("value", HEADER, "struct<key:string,value:binary>. value must be a(n) string or binary. "
         "Use to_json(value), or valueFormat=avro or protobuf"),
        ("key", t.ArrayType(INT), "array<int>. key must be a(n) string or binary. "
         "Use to_json(key), or keyFormat=avro or protobuf"),
        ("topic", BINARY, "binary. topic must be a(n) string. Use cast(topic AS string)"),
        ("partition", t.LongType(), "bigint. partition must be a(n) int. Use cast(partition AS int)"),
        ("headers", STRING, "string. headers must be a(n) array<struct<key:string,value:binary>>. "
         "Use map('name', 'text'), or array(struct('name' AS key, cast('text' AS binary) AS value))"),
        ("headers", t.ArrayType(schema(key=STRING, value=STRING)), "array<struct<key:string,value:string>>. "
         "headers must be a(n) array<struct<key:string,value:binary>>. "
         "Use transform(headers, h -> struct(cast(h.key AS string) AS key, cast(h.value AS binary) AS value))"),
        ("headers", t.MapType(STRING, INT), "map<string,int>. headers must be a(n) "
         "array<struct<key:string,value:binary>>. Use cast(headers AS map<string,string>)"),
    ],
)  # fmt: skip
def test_a_wrong_type_is_refused_as_by_sparks_own_sink_and_told_with_what_makes_it_right(name, kind, text):
    frame = schema(**{"value": STRING, "topic": STRING, name: kind})
    assert fault(frame, topic=None) == f"{name} attribute unsupported type {text}"


def test_the_topic_columns_type_does_not_matter_under_the_option():
    assert layout(schema(value=STRING, topic=INT)).topic is None


@pytest.mark.parametrize(
    "kind",
    [
        t.ArrayType(HEADER),
        t.ArrayType(HEADER, containsNull=False),
        t.MapType(STRING, BINARY),
        t.MapType(STRING, STRING),
    ],
)
def test_headers_are_an_array_of_structs_or_a_map(kind):
    assert layout(schema(value=STRING, headers=kind)).headers == 1


def test_an_untyped_null_key_is_a_null_key():
    assert layout(schema(value=STRING, key=t.NullType())).key is None


def test_a_column_named_timestamp_is_left_aside_unless_it_is_asked_for():
    frame = schema(value=STRING, timestamp=t.TimestampType())
    assert layout(frame).timestamp is None
    assert layout(frame, timestamp_column="timestamp").timestamp == 1


@pytest.mark.parametrize("kind", [t.TimestampNTZType(), STRING, INT])
def test_a_timestamp_column_of_another_type_is_refused(kind):
    assert fault(schema(value=STRING, at=kind), timestamp_column="at") == (
        f"timestampColumn 'at' has unsupported type {kind.simpleString()}. "
        "It must be a timestamp or a bigint (epoch milliseconds)"
    )


def test_a_timestamp_column_that_is_not_there_is_named_with_those_that_are():
    assert fault(schema(value=STRING, ts=t.LongType()), timestamp_column="at") == (
        "timestampColumn names a column 'at', which is missing; the columns are value, ts"
    )
