"""Fixtures of TestBrokers, each in a line."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from spark_kafka_sink.testing import TestBroker

Fixture = Callable[[pytest.FixtureRequest], Iterator[TestBroker]]


def broker_with(*topics: str, partitions: int = 1, like: Sequence[str] = (), **options: Any) -> Fixture:
    """A fixture, named as what it is assigned to: a broker with these ``options`` and topics, new for each test.

    ``like``: one of each of these releases in turn, instead of the newest.
    """

    @pytest.fixture(params=like or None)
    def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
        release = {"like": request.param} if like else {}
        with TestBroker(**release, **options) as broker:
            for topic in topics:
                broker.create_topic(topic, partitions)
            yield broker

    return broker
