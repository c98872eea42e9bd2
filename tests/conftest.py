"""What every test may rely on: a Java, and Spark's Python workers on this very interpreter."""

from __future__ import annotations

import os
import sys

import pytest

from spark_kafka_sink.testing.java import java_environment

# Spark starts its Python workers with PYSPARK_PYTHON, not with the Python that started the driver.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

JVM_FIXTURES = {"local_kafka", "spark"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for a real Kafka or a Spark session needs a JVM; it cannot forget to say so."""
    for item in items:
        if JVM_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("jvm")


@pytest.fixture(scope="session", autouse=True)
def java_home(request: pytest.FixtureRequest) -> None:
    """JAVA_HOME for Spark where Java is not on the PATH. Only when some test needs it."""
    if any(item.get_closest_marker("jvm") for item in request.session.items):
        os.environ.update(java_environment())
