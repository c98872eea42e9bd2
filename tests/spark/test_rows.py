"""Row by row: what becomes a record, and what is said of a row that cannot."""

import pytest

from tests.spark.writes import save

pytestmark = pytest.mark.jvm


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
