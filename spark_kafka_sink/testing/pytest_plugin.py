"""pytest fixtures: ``spark`` (a local Spark session), ``local_kafka`` (a real Kafka), ``local_schema_registry`` (a real
schema registry), each one for the whole session; ``kafka_test_broker`` (in process), a new one for each test.

``local_kafka`` runs the version of ``--kafka-version`` (repeatable: each test then runs on each). A test runs on others
with ``@pytest.mark.parametrize("local_kafka", ["4.4.0", "3.9.1"], indirect=True, scope="session")``. If a Kafka or
registry cannot start, tests fail; they are never skipped. A fixture of the same name in a ``conftest.py`` replaces the
plugin's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_kafka_sink.testing.broker import TestBroker
    from spark_kafka_sink.testing.local_kafka import LocalKafka
    from spark_kafka_sink.testing.local_schema_registry import LocalSchemaRegistry


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("spark-kafka-sink").addoption(
        "--kafka-version",
        action="append",
        metavar="VERSION",
        help="version of the real Kafka behind the fixture local_kafka; repeat it to run on several (default: 4.4.0)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "local_kafka" in metafunc.fixturenames and not _chosen_by_the_test(metafunc):
        from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION

        versions = metafunc.config.getoption("kafka_version") or [DEFAULT_VERSION]
        metafunc.parametrize("local_kafka", versions, indirect=True, scope="session")


def _chosen_by_the_test(metafunc: pytest.Metafunc) -> bool:
    return any(mark.args[0] == "local_kafka" for mark in metafunc.definition.iter_markers("parametrize"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local ``SparkSession`` of two cores, shared. Needs PySpark and Java 17."""
    from spark_kafka_sink.testing.local_spark import local_spark

    with local_spark() as session:
        yield session


@pytest.fixture
def kafka_test_broker() -> Iterator[TestBroker]:
    """A ``TestBroker`` of one node for one test: no JVM, no files."""
    from spark_kafka_sink.testing.broker.broker import TestBroker

    with TestBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def local_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """A running one-node ``LocalKafka``, shared: give each test's topics names of their own."""
    from spark_kafka_sink.testing.local_kafka import LocalKafka

    with LocalKafka(version=request.param) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def local_schema_registry() -> Iterator[LocalSchemaRegistry]:
    """A running ``LocalSchemaRegistry``, shared: give each test's subjects names of their own."""
    from spark_kafka_sink.testing.local_schema_registry import LocalSchemaRegistry

    with LocalSchemaRegistry() as registry:
        yield registry
