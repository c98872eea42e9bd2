"""What every release of the broker must do: batch and stream, both guarantees, counted by librdkafka.

``make test-brokers`` runs them on the releases in docs/versions.md.
"""

import pytest

from tests.spark.writes import expected, one_off, save, stream, streaming

pytestmark = pytest.mark.slow
each_guarantee = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


def numbers(spark, first, end):
    return spark.range(first, end, 1, 2).selectExpr("cast(id % 10 as string) key", "cast(id as string) value")


def has_exactly_once(kafka) -> bool:
    """From Kafka 2.5 on."""
    return tuple(map(int, kafka.version.split("."))) >= (2, 5)


@pytest.fixture
def to_topic(topic, guarantee, local_kafka):
    if guarantee == "exactly-once" and not has_exactly_once(local_kafka):
        pytest.skip("these brokers refuse it")
    return options_of(topic, guarantee)


def options_of(topic, guarantee):
    return {
        "kafka.bootstrap.servers": topic.servers,
        "kafka.compression.type": "zstd",
        "topic": topic.name,
        "deliveryGuarantee": guarantee,
    }


@each_guarantee
def test_a_batch_job_writes_each_row_once(spark, topic, to_topic):
    save(numbers(spark, 0, 1000), one_off(to_topic))
    assert topic.values() == expected(0, 1000)


@each_guarantee
def test_a_query_writes_each_row_once_over_a_restart(spark, topic, to_topic, tmp_path):
    for batch in range(2):
        frame = streaming(numbers(spark, batch * 500, batch * 500 + 500), tmp_path / "in")
        assert stream(frame, to_topic, tmp_path / "checkpoint") == [batch]
        assert topic.values() == expected(0, batch * 500 + 500)


@pytest.mark.parametrize("guarantee", ["exactly-once"])
def test_a_failed_job_leaves_nothing_open_and_nothing_visible(spark, topic, to_topic):
    rows = numbers(spark, 0, 1000).selectExpr("value", "if(value = '999', -1, 0) partition")
    with pytest.raises(Exception, match="Invalid partition: -1"):
        save(rows, one_off(to_topic))
    assert topic.values() == {}
    save(numbers(spark, 0, 10), one_off(to_topic))
    assert topic.values() == expected(0, 10)


def test_exactly_once_is_refused_before_the_first_row_where_brokers_lack_it(spark, topic, local_kafka):
    if has_exactly_once(local_kafka):
        pytest.skip("these brokers have it")
    with pytest.raises(Exception, match="These brokers lack APIs of transactions that exactly-once needs"):
        save(numbers(spark, 0, 10), one_off(options_of(topic, "exactly-once")))
    assert topic.values() == {}
