"""pytest fixtures ``kafka_test_broker`` (in process, one for each test), ``local_kafka`` (one real Kafka a session) and
``local_schema_registry`` (one real schema registry a session).

``local_kafka`` runs the version of ``--kafka-version`` (repeatable: each test then runs on each). A
test marked ``@pytest.mark.kafka_versions("4.1.1", "3.9.1")`` runs on those instead. When one cannot start, tests fail;
they are never skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_kafka_sink.testing.broker.fixture import kafka_test_broker

if TYPE_CHECKING:
    from spark_kafka_sink.testing.local_kafka import LocalKafka
    from spark_kafka_sink.testing.local_schema_registry import LocalSchemaRegistry

__all__ = ["kafka_test_broker", "local_kafka", "local_schema_registry"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("spark-kafka-sink").addoption(
        "--kafka-version",
        action="append",
        metavar="VERSION",
        help="version of the real Kafka behind the fixture local_kafka; repeat it to run on several (default: 4.1.1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kafka_versions(*versions): the versions local_kafka runs for this test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "local_kafka" in metafunc.fixturenames:
        from spark_kafka_sink.testing.local_kafka import DEFAULT_VERSION

        marker = metafunc.definition.get_closest_marker("kafka_versions")
        chosen = metafunc.config.getoption("kafka_version") or [DEFAULT_VERSION]
        metafunc.parametrize("local_kafka", marker.args if marker else chosen, indirect=True, scope="session")


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
