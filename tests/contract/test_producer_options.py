"""The option table against Kafka's own: ``ProducerConfig`` prints its definition."""

import html
import re
import subprocess

import pytest

from spark_kafka_sink.common.config.option import OptionKind
from spark_kafka_sink.common.config.producer_config import CONSUMER_OPTIONS, OPTIONS_BY_NAME
from spark_kafka_sink.common.config.security_rules import LOGIN
from spark_kafka_sink.testing.java import find_java
from spark_kafka_sink.testing.kafka_jars import kafka_jars
from tests.support.waiting import DEADLINE_S

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
