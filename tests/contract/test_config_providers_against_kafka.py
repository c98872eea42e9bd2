"""Placeholders get the values that Kafka's own ``ProducerConfig`` gives them."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from tests.support.options import SERVERS
from tests.unit.config.test_config_providers import providers

pytestmark = pytest.mark.jvm

SERIALIZER = "org.apache.kafka.common.serialization.ByteArraySerializer"
PROPERTIES = "key=value\nodd\\:key : v\\u00e4lue\\\n  and more\nagain=${env:HOME}\nempty=\nüml=ö\x0c\x1c\x85|\n"
SIGNS = ["${", "}", ":", "$", "{", " ", "x", "${file:FOLDER/p:", "${dir:FOLDER:", "${env:"]
WORDS = [
    "file", "dir", "env", "nope", "FOLDER", "/p", "key", "odd", "again", "üml", "empty", "none", "HOME", "/..", "/",
]  # fmt: skip
PIECES = st.sampled_from([*SIGNS, *WORDS])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("secrets")
    (made / "p").write_text(PROPERTIES)
    (made / "key").write_text("öne\ntwo")
    (made / "sub").mkdir()
    return made


OPTIONS = {
    **SERVERS,
    **providers(file="FileConfigProvider", dir="DirectoryConfigProvider", env="EnvVarConfigProvider"),
}


def by_java(jvm, given_options):
    """The client.id; None if Java refuses."""
    config = jvm.java.util.HashMap()
    for option, value in {**given_options, "key.serializer": SERIALIZER, "value.serializer": SERIALIZER}.items():
        config.put(option, value)
    try:
        return jvm.org.apache.kafka.clients.producer.ProducerConfig(config).getString("client.id")
    except Py4JJavaError:
        return None


def by_us(given_options):
    try:
        return ProducerConfig.parse(given_options).client_id
    except ConfigError:
        return None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES, max_size=10))
@example(pieces=["${file:FOLDER/p:key}"])
@example(pieces=["${file:FOLDER/p:odd:key}${dir:FOLDER:key}"])
@example(pieces=["${file:FOLDER/p:again}${file:FOLDER/p:üml}"])
@example(pieces=["${dir:FOLDER/sub:../key}"])
@example(pieces=["${env:HOME:x}"])
@example(pieces=["a${env:HOME}b${env:none}c${nope:HOME}d"])
@example(pieces=["${dir:FOLDER:sub}"])
def test_every_text_gets_the_values_that_kafka_gives_it(kafka_jvm, folder, pieces):
    text = f"x{''.join(pieces)}x".replace("FOLDER", str(folder))
    given_options = {**OPTIONS, "client.id": text}
    assert by_us(given_options) == by_java(kafka_jvm, given_options)


@pytest.mark.parametrize("allowed", ["", "FOLDER", "FOLDER/sub", "FOLDER/sub/..", "/,FOLDER/sub"])
@pytest.mark.parametrize("text", ["${file:FOLDER/p:key}", "${dir:FOLDER:key}", "${file:FOLDER/sub/../p:key}"])
def test_allowed_paths_mean_what_they_mean_to_kafka(kafka_jvm, folder, allowed, text):
    paths = allowed.replace("FOLDER", str(folder))
    given_options = {
        **OPTIONS,
        "config.providers.file.param.allowed.paths": paths,
        "config.providers.dir.param.allowed.paths": paths,
        "client.id": text.replace("FOLDER", str(folder)),
    }
    assert by_us(given_options) == by_java(kafka_jvm, given_options) is not None


@pytest.mark.parametrize("pattern", ["HOME", "^HO", "OM", "X", "(", "H.*E$"])
def test_an_allowlist_means_what_it_means_to_kafka(kafka_jvm, pattern):
    given_options = {**OPTIONS, "config.providers.env.param.allowlist.pattern": pattern, "client.id": "${env:HOME}"}
    assert by_us(given_options) == by_java(kafka_jvm, given_options)
