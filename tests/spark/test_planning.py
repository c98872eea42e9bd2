"""What is refused before any task starts: options and columns, batch and streaming alike."""

import pytest

from spark_kafka_sink.spark.schema import RowLayout, SchemaError
from tests.spark.writes import fails, one_row, save, stream, streaming

pytestmark = pytest.mark.jvm

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}
TO_TOPIC = {**SERVERS, "topic": "t"}


def test_all_faults_of_options_come_in_one_message(spark):
    said = fails(
        save, one_row(spark, "'v' value"), {"topic": " ", "topics": "x", "kafka.acks": "2", "kafka.lingerms": 1}
    )
    for fault in (
        "topic is blank",
        "topics is not an option of pykafka; did you mean topic?",
        "kafka.acks must be one of all, -1, 0, 1, but is '2'.",
        "kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?",
        "kafka.bootstrap.servers is required",
    ):
        assert f"- {fault}" in said


def test_all_faults_of_options_come_in_one_message_when_streaming(spark, tmp_path):
    frame = streaming(one_row(spark, "'v' value"), tmp_path / "in")
    said = fails(stream, frame, {"topics": "x", "kafka.acks": "2"}, tmp_path / "checkpoint")
    for fault in ("topics is not an option", "kafka.acks must be one of", "kafka.bootstrap.servers is required"):
        assert f"- {fault}" in said


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["'k' key"], TO_TOPIC, "Required attribute 'value' not found"),
        (["'v' Value"], TO_TOPIC, "Required attribute 'value' not found"),
        (["'v' value"], SERVERS, "topic option required when no 'topic' attribute is present. "
         "Use the topic option for setting a topic."),
        (["1 value"], TO_TOPIC, "value attribute unsupported type int. value must be a(n) string or binary"),
        (["'v' value", "1L key"], TO_TOPIC, "key attribute unsupported type bigint. key must be a(n) string or binary"),
        (["'v' value", "1 topic"], SERVERS, "topic attribute unsupported type int. topic must be a(n) string"),
        (["'v' value", "1L partition"], TO_TOPIC,
         "partition attribute unsupported type bigint. partition must be a(n) int"),
        (["'v' value", "array(named_struct('key', 'a', 'value', 1)) headers"], TO_TOPIC,
         "headers attribute unsupported type array<struct<key:string,value:int>>. "
         "headers must be a(n) array<struct<key:string,value:binary>>"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["batch", "streaming"])
def test_columns_are_refused_with_the_texts_of_sparks_own_sink(spark, tmp_path, how, columns, options, text):
    frame = one_row(spark, *columns)
    if how == "batch":
        assert text in fails(save, frame, options)
    else:
        assert text in fails(stream, streaming(frame, tmp_path / "in"), options, tmp_path / "checkpoint")


@pytest.mark.parametrize(
    "headers",
    [
        "'text'",
        "null",
        "map('a', 1)",
        "map(1, 2.5)",
        "map('a', array(1))",
        "array('a')",
        "array(struct('a' AS key, 'b' AS value))",
        "array(struct(cast('b' AS binary) AS value, 'a' AS key))",
        "array(struct(1 AS key, current_date() AS value, true AS more))",
        "array(struct('a' AS key, array(1) AS value))",
    ],
)
def test_the_remedy_for_headers_of_a_wrong_type_makes_headers(spark, headers):
    frame = spark.range(1).selectExpr("'v' AS value", f"{headers} AS headers")
    with pytest.raises(SchemaError) as raised:
        RowLayout.of(frame.schema, "t", None)
    _, _, remedies = str(raised.value).partition(". Use ")
    assert remedies
    for remedy in remedies.split(", or "):
        mended = frame.selectExpr("value", f"{remedy} AS headers")
        assert RowLayout.of(mended.schema, "t", None).headers == 1
        mended.collect()


def test_overwrite_is_refused(spark):
    assert 'Save mode Overwrite not allowed for Kafka. The allowed save mode is Append: .mode("append").' in fails(
        save, one_row(spark, "'v' value"), TO_TOPIC, "overwrite"
    )


def test_a_save_without_mode_is_refused_by_spark_itself(spark):
    frame = one_row(spark, "'v' value")
    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in fails(frame.write.format("pykafka").options(**TO_TOPIC).save)


def test_update_mode_is_refused_by_spark_itself(spark, tmp_path):
    counts = streaming(one_row(spark, "'v' value"), tmp_path / "in").groupBy("value").count()
    said = fails(stream, counts.select("value"), TO_TOPIC, tmp_path / "checkpoint", "update")
    assert "pykafka does not support Update mode" in said


def test_serializers_are_refused_with_the_text_of_sparks_own_sink(spark):
    said = fails(save, one_row(spark, "'v' value"), {**TO_TOPIC, "kafka.key.serializer": "x"})
    assert "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer." in said


def test_reading_is_pointed_at_sparks_own_source(spark):
    assert 'pykafka only writes; read the topic with Spark\'s own source, format("kafka")' in fails(
        spark.read.format("pykafka").options(**TO_TOPIC).load
    )
