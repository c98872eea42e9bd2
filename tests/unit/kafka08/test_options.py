"""Kafka 0.8's names of options mean the current options, also in errors."""

import warnings

import pytest

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.kafka08.options import overridden, parse_either_name
from tests.support.options import SERVERS

STRINGS = "spark_kafka_sink.producer.serializers:StringSerializer"


def parse_quietly(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse_either_name(options)


@pytest.mark.parametrize(
    ("old", "current"),
    [
        ({"metadata.broker.list": "a:1,b:2"}, {"bootstrap.servers": "a:1,b:2"}),
        ({**SERVERS, "request.required.acks": "-1"}, {**SERVERS, "acks": "-1"}),
        ({**SERVERS, "compression.codec": "snappy"}, {**SERVERS, "compression.type": "snappy"}),
        ({**SERVERS, "compression.codec": 1}, {**SERVERS, "compression.type": "gzip"}),
        ({**SERVERS, "message.send.max.retries": "7"}, {**SERVERS, "retries": "7"}),
        ({**SERVERS, "topic.metadata.refresh.interval.ms": "-1"}, {**SERVERS, "metadata.max.age.ms": 2**63 - 1}),
        ({**SERVERS, "key.serializer.class": "a.b:C"}, {**SERVERS, "key.serializer": "a.b:C"}),
        (
            {**SERVERS, "serializer.class": "kafka.serializer.StringEncoder"},
            {**SERVERS, "value.serializer": STRINGS, "key.serializer": STRINGS},
        ),
        (
            {**SERVERS, "serializer.class": "a.b:C", "key.serializer.class": "a.b:D"},
            {**SERVERS, "value.serializer": "a.b:C", "key.serializer": "a.b:D"},
        ),
        (
            {**SERVERS, "serializer.class": "a.b:C", "key.serializer": "a.b:D"},
            {**SERVERS, "value.serializer": "a.b:C", "key.serializer": "a.b:D"},
        ),
        ({**SERVERS, "producer.type": "async", "message.send.max.retries": None}, SERVERS),
    ],
)
def test_an_old_name_is_the_current_option(old, current):
    assert parse_quietly(old) == parse_quietly(current)


def test_a_fault_has_the_name_that_was_given():
    with pytest.raises(ConfigError) as raised:
        parse_either_name({"metadata.broker.list": "nowhere", "request.required.acks": 2})
    assert raised.value.faults == (
        "request.required.acks must be one of all, -1, 0, 1, but is 2.",
        "metadata.broker.list entry 'nowhere' is not host:port (an IPv6 address is written [::1]:9092).",
    )
    with pytest.raises(ConfigError) as raised:
        parse_either_name({**SERVERS, "serializer.class": "com.example.Avro"})
    (fault,) = raised.value.faults
    assert fault.startswith("serializer.class is 'com.example.Avro'; JVM classes cannot be loaded")


def test_an_option_under_both_names_is_a_fault():
    with pytest.raises(ConfigError) as raised:
        parse_either_name({**SERVERS, "acks": "all", "request.required.acks": "all"})
    assert raised.value.faults == (
        "request.required.acks is the old name of acks, which is given too; leave one of them out.",
    )


def test_later_options_override_earlier_ones_under_either_name():
    file = {"metadata.broker.list": "old:1", "acks": "1", "client.id": "me"}
    assert overridden(file, {"bootstrap.servers": "new:1", "request.required.acks": "0"}) == {
        "bootstrap.servers": "new:1", "request.required.acks": "0", "client.id": "me",
    }  # fmt: skip
