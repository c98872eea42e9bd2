"""``parse_jaas`` reads what Kafka's ``JaasContext`` reads, with the same result."""

from pathlib import Path

import py4j.java_gateway
import pyspark
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from spark_kafka_sink.config.jaas import JaasError, parse_jaas
from spark_kafka_sink.testing import DEFAULT_VERSION
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars

pytestmark = pytest.mark.jvm

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SIGNS = ["=", " ", ";", '"', "'", "\\", "\n", "\r", "\t", "/", "//", "/*", "*/", ",", "{", "\x7f", "\x85", "\xa0"]
WORDS = [
    "key",
    "\\n",
    "\\101",
    "\\477",
    "a-b",
    "-",
    "-1",
    "1.5",
    ".",
    "$_",
    "é",
    "€",
    "required",
    "k=v",
    'k="v"',
    "a.b",
]
PIECES = st.sampled_from([*SIGNS, *WORDS])


@pytest.fixture(scope="module")
def jaas_context():
    """Kafka's class, in a JVM of its own."""
    py4j_jar = next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar"))
    jars = ":".join(str(jar) for jar in kafka_jars(DEFAULT_VERSION).glob("*.jar"))
    port, process = py4j.java_gateway.launch_gateway(
        jarpath=str(py4j_jar), classpath=jars, java_path=str(find_java()), die_on_exit=True, return_proc=True
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()
    process.stdin.close()  # it ends with its input
    process.wait(30)


def by_java(jvm, text):
    """Class and options; None if Java refuses."""
    config = jvm.java.util.HashMap()
    config.put("sasl.jaas.config", jvm.org.apache.kafka.common.config.types.Password(text))
    try:
        (entry,) = jvm.org.apache.kafka.common.security.JaasContext.loadClientContext(config).configurationEntries()
    except Py4JJavaError:
        return None
    return entry.getLoginModuleName(), dict(entry.getOptions())


def by_us(text):
    try:
        module = parse_jaas(text)
    except JaasError:
        return None
    return module.name, {key or None: value for key, value in module.options.items()}


@settings(max_examples=500)
@given(pieces=st.lists(PIECES, max_size=12))
@example(pieces=['password="a\\"b\\\\c" ', "user=x", ";"])
@example(pieces=['password="open', "\n", "user=x;"])
@example(pieces=["password", " ", "=", "'", '"', "'", ";", "//"])
@example(pieces=[";", MODULE, " required;"])
def test_every_text_is_read_or_refused_as_by_kafka(jaas_context, pieces):
    text = f"{MODULE} required {''.join(pieces)}"
    assert by_us(text) == by_java(jaas_context, text)


@pytest.mark.parametrize("text", ["", " ", ";", MODULE, f"{MODULE} maybe;", f"{MODULE} 'required';", f"{MODULE} =;"])
def test_flag_and_class_are_asked_for_as_by_kafka(jaas_context, text):
    assert by_us(text) == by_java(jaas_context, text)
