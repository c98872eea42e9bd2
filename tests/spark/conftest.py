"""Topics of one Kafka for all tests of the sink in Spark."""

from __future__ import annotations

import itertools

import pytest

from tests.spark.topics import Topic

PARTITIONS = 4

_numbers = itertools.count(1)


@pytest.fixture
def topic(local_kafka):
    """A new topic of four partitions."""
    name = f"topic-{next(_numbers)}"
    local_kafka.create_topic(name, PARTITIONS)
    return Topic(local_kafka.bootstrap_servers, name)


@pytest.fixture
def second_topic(local_kafka):
    name = f"topic-{next(_numbers)}"
    local_kafka.create_topic(name, 1)
    return Topic(local_kafka.bootstrap_servers, name)


@pytest.fixture
def to_topic(topic):
    """The options of a write at least once."""
    return {"kafka.bootstrap.servers": topic.servers, "topic": topic.name}
