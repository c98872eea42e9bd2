"""Fixtures of the contract tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import py4j.java_gateway
import py4j.protocol
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from spark_kafka_sink.testing import DEFAULT_VERSION, LocalKafka, TestBroker
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars
from tests.support.kafka_versions import TEST_BROKER, is_test_broker
from tests.support.waiting import DEADLINE_S


@pytest.fixture(scope="session")
def local_kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka | None]:
    """A real Kafka, or None if the test's ``cluster`` is a TestBroker."""
    if is_test_broker(request.param):
        yield None
    else:
        with LocalKafka(version=request.param) as kafka:
            yield kafka


@pytest.fixture
def cluster(request: pytest.FixtureRequest, local_kafka: LocalKafka | None) -> Iterator[LocalKafka | TestBroker]:
    """What ``on_kafka`` names: a shared Kafka, or a TestBroker of the test's own."""
    if local_kafka is not None:
        yield local_kafka
        return
    release = request.node.callspec.params["local_kafka"].removeprefix(TEST_BROKER).strip()
    with TestBroker(**({"like": release} if release else {})) as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka_jvm():
    """Kafka's classes, in a JVM of their own."""
    py4j_jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    jars = ":".join(str(jar) for jar in kafka_jars(DEFAULT_VERSION).glob("*.jar"))
    port, process = py4j.java_gateway.launch_gateway(
        jarpath=str(py4j_jar), classpath=jars, java_path=str(find_java()), die_on_exit=True, return_proc=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    with pytest.MonkeyPatch.context() as patch:
        # A Spark session in this process has replaced it, and looks errors up in classes that only its own JVM has.
        patch.setattr("py4j.java_gateway.get_return_value", py4j.protocol.get_return_value)
        yield gateway.jvm
    gateway.shutdown()
    process.stdin.close()  # it ends with its input
    process.wait(DEADLINE_S)
