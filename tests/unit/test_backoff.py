from __future__ import annotations

from random import Random

import pytest

from spark_kafka_sink.common.clock import ExponentialBackoff


class _MiddleRandom(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_doubles_up_to_the_maximum():
    backoff = ExponentialBackoff(100, 1000, _MiddleRandom())
    assert [backoff.delay(attempts) for attempts in range(6)] == pytest.approx([100, 200, 400, 800, 1000, 1000])


def test_jitter_is_twenty_percent_and_never_exceeds_the_maximum():
    backoff = ExponentialBackoff(100, 1000, Random(7))
    first = [backoff.delay(0) for _ in range(500)]
    assert 80 <= min(first) < 83
    assert 117 < max(first) <= 120
    late = [backoff.delay(10**9) for _ in range(500)]
    assert 800 <= min(late) < 830
    assert max(late) == 1000


def test_a_first_delay_above_the_maximum_stays_within_it():
    backoff = ExponentialBackoff(1000, 50, Random(7))
    assert all(1 <= backoff.delay(attempts) <= 50 for attempts in range(100))


def test_incident_a_backoff_of_0_was_no_backoff():
    assert [ExponentialBackoff(0, 0, Random(7)).delay(attempts) for attempts in range(3)] == [1, 1, 1]
    doubling = ExponentialBackoff(0, 1000, _MiddleRandom())
    assert [doubling.delay(attempts) for attempts in (0, 1, 2, 9, 50)] == pytest.approx([1, 2, 4, 512, 1000])
