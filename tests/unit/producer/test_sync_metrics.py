"""Rates of the synchronous producer over two samples of 30 seconds."""

from spark_kafka_sink.producer.sync_producer import Count, SyncMetrics


def rate(metrics: SyncMetrics, now: float) -> float:
    return metrics.read(now)["producer-metrics"]["message-rate"]


def test_a_rate_counts_one_more_sample_before_the_first_is_over():
    metrics = SyncMetrics()
    metrics.add(Count.MESSAGES, ["t"] * 60, 1_000.0)
    assert rate(metrics, 1_000.0) == 2.0
    assert rate(metrics, 31_000.0) == 2.0
    assert rate(metrics, 41_000.0) == 1.5


def test_a_rate_forgets_what_is_older_than_two_samples_and_a_total_does_not():
    metrics = SyncMetrics()
    metrics.add(Count.MESSAGES, ["t"] * 60, 0.0)
    metrics.add(Count.MESSAGES, ["t"] * 30, 40_000.0)
    assert rate(metrics, 50_000.0) == 90 / 50
    assert rate(metrics, 70_000.0) == 30 / 30
    assert rate(metrics, 200_000.0) == 0.0
    assert metrics.read(200_000.0)["producer-topic-metrics.t"]["message-total"] == 90
