"""Streaming queries as a whole."""

import pytest

from tests.spark.writes import expected, lose_commit, numbers, stream, streaming

pytestmark = pytest.mark.jvm


def test_a_query_restarted_from_its_checkpoint_writes_what_is_new(spark, topic, to_topic, tmp_path):
    first = streaming(numbers(spark, 0, 500), tmp_path / "in")
    assert stream(first, to_topic, tmp_path / "checkpoint") == [0]
    assert topic.values() == expected(0, 500)
    again = streaming(numbers(spark, 500, 700), tmp_path / "in")
    assert stream(again, to_topic, tmp_path / "checkpoint") == [1]
    assert topic.values() == expected(0, 700)


def test_a_micro_batch_whose_commit_was_lost_is_written_again(spark, topic, to_topic, tmp_path):
    frame = streaming(numbers(spark, 0, 100), tmp_path / "in")
    stream(frame, to_topic, tmp_path / "checkpoint")
    lose_commit(tmp_path / "checkpoint", 0)
    stream(frame, to_topic, tmp_path / "checkpoint")
    assert topic.values() == dict.fromkeys(expected(0, 100), 2), "at least once: twice, and nothing lost"


def test_complete_mode_appends_the_whole_result_every_time(spark, topic, to_topic, tmp_path):
    for end in (3, 6):
        rows = streaming(spark.range(end - 3, end).selectExpr("cast(id % 3 as string) key"), tmp_path / "in")
        counts = rows.groupBy("key").count().selectExpr("key", "cast(count as string) value")
        stream(counts, to_topic, tmp_path / "checkpoint", "complete")
    assert topic.values() == {b"1": 3, b"2": 3}
