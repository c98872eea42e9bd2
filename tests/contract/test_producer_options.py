"""Options against Kafka's own jar: the table, what placeholders become, and what ``JaasContext`` reads."""

import html
import re
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import OptionKind
from spark_kafka_sink.common.config.other_clients import CONSUMER_OPTIONS
from spark_kafka_sink.common.config.producer_config import OPTIONS_BY_NAME
from spark_kafka_sink.common.config.security_rules import LOGIN, JaasError, parse_jaas
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars
from tests.support.options import SERVERS
from tests.support.waiting import DEADLINE_S
from tests.unit.config.test_config_providers import providers

pytestmark = pytest.mark.jvm

NEWEST = "4.4.0"

UNDOCUMENTED = {"auto.include.jmx.reporter", "buffer.memory.allocation.strategy"}
"""Removed in 4.0; internal in 4.4, so that Kafka's page lacks it."""

OF_OUR_OWN = {
    "batch.size": ("262144", "16384"),
    "sasl.login.connect.timeout.ms": ("10000", "null"),
    "sasl.login.read.timeout.ms": ("10000", "null"),
    "send.buffer.bytes": ("-1", "131072"),
}
"""Defaults that are not Kafka's: ours, and Kafka's."""
OUR_OWN = {"sasl.token.provider", "allow.auto.create.topics"}


@pytest.fixture(scope="module")
def javas():
    return documented("org.apache.kafka.clients.producer.ProducerConfig")


def documented(config):
    """Name → (type, default, importance) as Kafka documents them."""
    command = [find_java(), "-cp", f"{kafka_jars(NEWEST)}/*", config]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout
    options = {}
    for section in page.split("<h4>")[1:]:
        name = re.search(r'id="(?:(?:producer|consumer)configs_)?([^"]+)"', section)[1]
        cells = dict(re.findall(r"<tr><th>(.*?):</th><td>(.*?)</td></tr>", section, re.DOTALL))
        options[name] = (cells["Type"], html.unescape(cells["Default"]), cells["Importance"])
    return options


def as_java_prints(option):
    """A default as Kafka's page shows it, without the reading aid for long times and sizes."""
    if option.default is None:
        return "null"
    if option.default == "":
        return '""'
    return str(option.default).lower() if option.kind is OptionKind.BOOLEAN else str(option.default)


def test_the_table_has_every_option_of_kafkas_producer(javas):
    assert set(OPTIONS_BY_NAME) - OUR_OWN - UNDOCUMENTED == set(javas)


def test_types_and_defaults_are_kafkas_but_for_those_of_our_own(javas):
    without_default = {"bootstrap.servers", "key.serializer", "value.serializer"}
    # Releases differ in whether an empty list is null.
    empty_lists = {"ssl.cipher.suites", "sasl.oauthbearer.expected.audience"}
    ours = {name: (OPTIONS_BY_NAME[name].kind.value, as_java_prints(OPTIONS_BY_NAME[name])) for name in javas}
    theirs = {name: (kind, re.sub(r" \(.*\)$", "", default)) for name, (kind, default, _) in javas.items()}
    differing = {name: (ours[name][1], theirs[name][1]) for name in OF_OUR_OWN}
    assert differing == OF_OUR_OWN
    left_out = without_default | empty_lists | set(OF_OUR_OWN)
    assert {n: o for n, o in ours.items() if n not in left_out} == {
        n: t for n, t in theirs.items() if n not in left_out
    }


def test_importances_are_kafkas(javas):
    security = {name for name in javas if name.startswith((*LOGIN, "sasl.client.", "security.providers"))}
    names = set(javas) - security
    assert {name: OPTIONS_BY_NAME[name].importance for name in names} == {name: javas[name][2] for name in names}


def test_the_table_has_every_option_of_kafkas_consumer(javas):
    consumers = set(documented("org.apache.kafka.clients.consumer.ConsumerConfig"))
    assert consumers - set(OPTIONS_BY_NAME) == CONSUMER_OPTIONS


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


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS_SIGNS = ["=", " ", ";", '"', "'", "\\", "\n", "\r", "\t", "/", "//", "/*", "*/", ",", "{", "\x7f", "\x85", "\xa0"]
JAAS_WORDS = [
    "key", "\\n", "\\101", "\\477", "a-b", "-", "-1", "1.5", ".", "$_", "é", "€", "required", "k=v", 'k="v"', "a.b",
]  # fmt: skip
JAAS_PIECES = st.sampled_from([*JAAS_SIGNS, *JAAS_WORDS])


def jaas_by_java(jvm, text):
    """Class and options; None if Java refuses."""
    config = jvm.java.util.HashMap()
    config.put("sasl.jaas.config", jvm.org.apache.kafka.common.config.types.Password(text))
    try:
        (entry,) = jvm.org.apache.kafka.common.security.JaasContext.loadClientContext(config).configurationEntries()
    except Py4JJavaError:
        return None
    return entry.getLoginModuleName(), dict(entry.getOptions())


def jaas_by_us(text):
    try:
        module = parse_jaas(text)
    except JaasError:
        return None
    return module.name, {key or None: value for key, value in module.options.items()}


@settings(max_examples=500)
@given(pieces=st.lists(JAAS_PIECES, max_size=12))
@example(pieces=['password="a\\"b\\\\c" ', "user=x", ";"])
@example(pieces=['password="open', "\n", "user=x;"])
@example(pieces=["password", " ", "=", "'", '"', "'", ";", "//"])
@example(pieces=[";", MODULE, " required;"])
def test_every_text_is_read_or_refused_as_by_kafka(kafka_jvm, pieces):
    text = f"{MODULE} required {''.join(pieces)}"
    assert jaas_by_us(text) == jaas_by_java(kafka_jvm, text)


@pytest.mark.parametrize("text", ["", " ", ";", MODULE, f"{MODULE} maybe;", f"{MODULE} 'required';", f"{MODULE} =;"])
def test_flag_and_class_are_asked_for_as_by_kafka(kafka_jvm, text):
    assert jaas_by_us(text) == jaas_by_java(kafka_jvm, text)
