"""What is refused before any task starts: options and columns, batch and streaming alike."""

import pytest

from spark_kafka_sink.spark.schema import RowLayout, SchemaError
from tests.spark.writes import fails, one_row, stream, streaming

pytestmark = pytest.mark.jvm

SERVERS = {"kafka.bootstrap.servers": "localhost:1"}
TO_TOPIC = {**SERVERS, "topic": "t"}


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
