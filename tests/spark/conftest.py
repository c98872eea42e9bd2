"""Topics of one Kafka for all tests of the sink in Spark."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import pytest

from tests.spark.topics import Topic

PARTITIONS = 4

_numbers = itertools.count(1)

# Spark's Python workers inherit this, so it is set before any test starts a JVM. botocore finds the credentials there
# that a test writes into the file, and none of the machine's own.
AWS_CREDENTIALS = Path(tempfile.gettempdir(), f"aws-credentials-{os.getpid()}")
os.environ.update(
    AWS_SHARED_CREDENTIALS_FILE=str(AWS_CREDENTIALS), AWS_CONFIG_FILE=os.devnull, AWS_EC2_METADATA_DISABLED="true"
)


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
