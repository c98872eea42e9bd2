"""One Spark session and one Kafka for all tests of the sink in Spark."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.topics import Topic

ROOT = Path(__file__).parents[2]
PARTITIONS = 4


@pytest.fixture(scope="session")
def spark():
    # Spark's Python processes find the package as this one does, installed or not.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # A task may fail once: [cores, attempts].
    builder = SparkSession.builder.master("local[2,2]").appName("tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.pollingDelay": "5ms",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


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
