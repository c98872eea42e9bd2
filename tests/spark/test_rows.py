"""Row by row: what becomes a record, and what is said of a row that cannot."""

import pytest

from spark_kafka_sink.testing import LocalKafka
from tests.spark.topics import Topic
from tests.spark.writes import fails, one_row, save

pytestmark = pytest.mark.jvm


@pytest.fixture
def to_topic(topic):
    return {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}


def saved(frame, options, topic):
    """(key, value, headers) of every record after the write, in the order of the values."""
    save(frame, options)
    records = [(record.key, record.value, record.headers) for record in topic.records()]
    return sorted(records, key=lambda record: record[1] or b"")


def test_nulls_are_tombstones_null_keys_and_null_header_values(spark, topic, to_topic):
    rows = [(None, None, None), ("k", None, []), (None, "v", [("h", None), ("i", bytearray(b"1"))])]
    frame = spark.createDataFrame(rows, "key string, value string, headers array<struct<key:string,value:binary>>")
    assert sorted(saved(frame, to_topic, topic), key=str) == [
        (None, None, None), (None, b"v", (("h", None), ("i", b"1"))), (b"k", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_headers_may_be_a_map(spark, topic, to_topic, kind):
    frame = one_row(spark, "'v' value", f"map('a', cast('1' as {kind}), 'b', cast(null as {kind})) headers")
    assert saved(frame, to_topic, topic) == [(None, b"v", (("a", b"1"), ("b", None)))]


def test_headers_are_sent_whatever_include_headers_says(spark, topic, to_topic):
    frame = one_row(spark, "'v' value", "map('a', 'b') headers")
    assert saved(frame, {**to_topic, "includeHeaders": "false"}, topic) == [(None, b"v", (("a", b"b"),))]


def test_an_untyped_null_key_is_a_null_key(spark, topic, to_topic):
    assert saved(one_row(spark, "null key", "'v' value"), to_topic, topic) == [(None, b"v", None)]


def test_keys_and_values_may_be_text_or_bytes(spark, topic, to_topic):
    frame = one_row(spark, "X'00FF' key", "'žluť' value")
    assert saved(frame, to_topic, topic) == [(b"\x00\xff", "žluť".encode(), None)]


def test_other_columns_are_left_aside(spark, topic, to_topic):
    frame = one_row(spark, "1 a", "'v' value", "timestamp'2001-01-01' timestamp", "array(1) b")
    save(frame, to_topic)
    (record,) = topic.records()
    assert record.timestamp > 1_500_000_000_000, "a column named timestamp is not the record's unless it is asked for"


def test_a_column_can_be_the_records_timestamp(spark, topic, to_topic):
    frame = spark.sql("select '1' value, timestamp'2001-01-01 00:00:00.0019' at union all select '2', null")
    save(frame, {**to_topic, "timestampColumn": "at"})
    by_value = {record.value: record.timestamp for record in topic.records()}
    assert by_value[b"1"] == 978_307_200_001
    assert by_value[b"2"] > 1_500_000_000_000


def test_a_bigint_can_be_the_records_timestamp(spark, topic, to_topic):
    save(one_row(spark, "'v' value", "978307200001L at"), {**to_topic, "timestampColumn": "at"})
    assert [record.timestamp for record in topic.records()] == [978_307_200_001]


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


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["'v' value", "cast(null as string) topic"],
         "The Kafka message data sent to the producer contains a null topic. "
         "Use the `topic` option for setting a default topic. (row 0 of the task, counted from 0)"),
        (["'v' value", "'t' topic", "-1 partition"],
         "Invalid partition: -1. Partition number should always be non-negative or null."),
        (["'v' value", "'t' topic", "array(named_struct('key', cast(null as string), 'value', X'00')) headers"],
         "Invalid null header key found in headers (row 0 of the task, counted from 0)"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_a_record_fails_the_job_with_its_number(spark, local_kafka, columns, text):
    assert text in fails(save, one_row(spark, *columns), {"kafka.bootstrap.servers": local_kafka.bootstrap_servers})


def test_a_record_above_max_request_size_is_refused_with_its_row(spark, topic, to_topic):
    frame = spark.range(3).coalesce(1).selectExpr("case id when 2 then repeat('x', 2000000) else 'small' end value")
    said = fails(save, frame, to_topic)
    assert (
        "The message is 2000088 bytes when serialized which is larger than 1048576, "
        "which is the value of the kafka.max.request.size configuration." in said
    )
    assert "(row 2 of the task, counted from 0)" in said
    assert "or set deadLetterTopic, so that such rows become dead letters." in said


def test_a_partition_that_is_not_there_fails_after_max_block_ms(spark, topic, to_topic):
    said = fails(save, one_row(spark, "'v' value", "99 partition"), {**to_topic, "kafka.max.block.ms": 1500})
    assert (
        f"Partition 99 of topic {topic.name} with partition count 4 is not present in metadata after 1500 ms." in said
    )


def test_a_missing_topic_is_created_where_the_broker_does_that(spark, local_kafka):
    created = Topic(local_kafka.bootstrap_servers, "created-by-the-write")
    save(one_row(spark, "'v' value"), {"kafka.bootstrap.servers": created.servers, "topic": created.name})
    assert created.values() == {b"v": 1}


def test_a_missing_topic_fails_after_max_block_ms_where_the_broker_creates_none(spark):
    with LocalKafka(properties={"auto.create.topics.enable": "false"}) as kafka:
        kafka.create_topic("orders")
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "ordres", "kafka.max.block.ms": 1500}
        said = fails(save, one_row(spark, "'v' value"), options)
        exactly_once = {**options, "deliveryGuarantee": "exactly-once", "txnAppId": "once", "txnVersion": 0}
        said_too = fails(save, one_row(spark, "'v' value"), exactly_once)
    for each in (said, said_too):
        assert "Topic ordres not present in metadata after 1500 ms." in each
        assert "Did you mean orders? With topicCreation=create, the sink creates missing topics." in each


def test_an_unreachable_broker_fails_after_max_block_ms(spark):
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "kafka.max.block.ms": 1500}
    said = fails(save, one_row(spark, "'v' value"), options)
    assert "Topic t not present in metadata after 1500 ms." in said
    assert "localhost:1" in said
