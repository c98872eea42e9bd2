"""Row by row: what becomes a record, and what is said of a row that cannot."""

import pytest

from tests.spark.topics import Topic
from tests.spark.writes import fails, one_row, save

pytestmark = pytest.mark.jvm


def saved(frame, options, topic):
    """(key, value, headers) of every record after the write, in the order of the values."""
    save(frame, options)
    records = [(record.key, record.value, record.headers) for record in topic.records()]
    return sorted(records, key=lambda record: record[1] or b"")


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_headers_may_be_a_map(spark, topic, to_topic, kind):
    frame = one_row(spark, "'v' value", f"map('a', cast('1' as {kind}), 'b', cast(null as {kind})) headers")
    assert saved(frame, to_topic, topic) == [(None, b"v", (("a", b"1"), ("b", None)))]


def test_a_column_can_be_the_records_timestamp(spark, topic, to_topic):
    frame = spark.sql("select '1' value, timestamp'2001-01-01 00:00:00.0019' at union all select '2', null")
    save(frame, {**to_topic, "timestampColumn": "at"})
    by_value = {record.value: record.timestamp for record in topic.records()}
    assert by_value[b"1"] == 978_307_200_001
    assert by_value[b"2"] > 1_500_000_000_000


def test_a_partition_column_decides_and_null_leaves_it_to_the_key(spark, topic, to_topic):
    rows = [(str(number), "same key", number % 4 if number < 40 else None) for number in range(60)]
    save(spark.createDataFrame(rows, "value string, key string, partition int"), to_topic)
    placed = {int(record.value): record.partition for record in topic.records()}
    assert [placed[number] for number in range(40)] == [number % 4 for number in range(40)]
    assert len({placed[number] for number in range(40, 60)}) == 1


def test_rows_go_to_the_topic_of_their_column_unless_the_option_says_otherwise(spark, topic, second_topic):
    servers = {"kafka.bootstrap.servers": topic.servers}
    rows = [(name, f"{name}-{number}") for number in range(1000) for name in (topic.name, second_topic.name)]
    frame = spark.createDataFrame(rows, "topic string, value string")
    save(frame, servers)
    for each in (topic, second_topic):
        assert each.values() == {f"{each.name}-{number}".encode(): 1 for number in range(1000)}
    save(frame, {**servers, "topic": f" {second_topic.name} "})
    assert (topic.values().total(), second_topic.values().total()) == (1000, 3000)


def test_a_record_above_max_request_size_is_refused_with_its_row(spark, topic, to_topic):
    frame = spark.range(3).coalesce(1).selectExpr("case id when 2 then repeat('x', 2000000) else 'small' end value")
    said = fails(save, frame, to_topic)
    assert (
        "The message is 2000088 bytes when serialized which is larger than 1048576, "
        "which is the value of the kafka.max.request.size configuration." in said
    )
    assert "(row 2 of the task, counted from 0)" in said
    assert "or set deadLetterTopic, so that such rows become dead letters." in said


def test_a_missing_topic_is_created_where_the_broker_does_that(spark, local_kafka):
    created = Topic(local_kafka.bootstrap_servers, "created-by-the-write")
    save(one_row(spark, "'v' value"), {"kafka.bootstrap.servers": created.servers, "topic": created.name})
    assert created.values() == {b"v": 1}
