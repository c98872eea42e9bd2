"""Kafka's own classes, to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j.java_gateway
import py4j.protocol
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from spark_kafka_sink.testing import DEFAULT_VERSION
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars
from tests.support.waiting import DEADLINE_S


@contextmanager
def kafka_jvm() -> Iterator[Any]:
    """A JVM with the classes of Kafka's newest release."""
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
