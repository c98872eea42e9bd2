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


def test_a_save_without_mode_is_refused_by_spark_itself(spark):
    frame = one_row(spark, "'v' value")
    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in fails(frame.write.format("pykafka").options(**TO_TOPIC).save)


def test_update_mode_is_refused_by_spark_itself(spark, tmp_path):
    counts = streaming(one_row(spark, "'v' value"), tmp_path / "in").groupBy("value").count()
    said = fails(stream, counts.select("value"), TO_TOPIC, tmp_path / "checkpoint", "update")
    assert "pykafka does not support Update mode" in said
