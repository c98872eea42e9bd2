"""``parse_jaas`` reads what Kafka's ``JaasContext`` reads, with the same result."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from spark_kafka_sink.common.config.security_rules import JaasError, parse_jaas

pytestmark = pytest.mark.jvm

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SIGNS = ["=", " ", ";", '"', "'", "\\", "\n", "\r", "\t", "/", "//", "/*", "*/", ",", "{", "\x7f", "\x85", "\xa0"]
WORDS = [
    "key", "\\n", "\\101", "\\477", "a-b", "-", "-1", "1.5", ".", "$_", "é", "€", "required", "k=v", 'k="v"', "a.b",
]  # fmt: skip
PIECES = st.sampled_from([*SIGNS, *WORDS])


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
def test_every_text_is_read_or_refused_as_by_kafka(kafka_jvm, pieces):
    text = f"{MODULE} required {''.join(pieces)}"
    assert by_us(text) == by_java(kafka_jvm, text)


@pytest.mark.parametrize("text", ["", " ", ";", MODULE, f"{MODULE} maybe;", f"{MODULE} 'required';", f"{MODULE} =;"])
def test_flag_and_class_are_asked_for_as_by_kafka(kafka_jvm, text):
    assert by_us(text) == by_java(kafka_jvm, text)
