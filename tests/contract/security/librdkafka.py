"""confluent-kafka with the options of a Java client: the referee for what should work."""

import re
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place

from tests.support.waiting import DEADLINE_S, eventually

_NAMES = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}
_KEPT = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
# What TestBroker notes when a client is closed before its last connection stands.
HUNG_UP = "the client hung up"
_LEFT_OUT = ("ssl.truststore.type", "ssl.keystore.type")


def librdkafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Stores are PEM. An option that has no counterpart here is an error of the test."""
    own = {}
    for name, value in options.items():
        if name in _KEPT:
            own[name] = value
        elif name in _NAMES:
            own[_NAMES[name]] = value
        elif name == "ssl.keystore.location":
            own |= {"ssl.certificate.location": value, "ssl.key.location": value}
        elif name == "sasl.jaas.config":
            own |= {"sasl.username": _quoted(value, "username"), "sasl.password": _quoted(value, "password")}
        else:
            assert name in _LEFT_OUT, name
    return own


def _quoted(jaas: str, name: str) -> str:
    found = re.search(rf'{name}="((?:[^"\\]|\\.)*)"', jaas)
    assert found, jaas
    return re.sub(r"\\(.)", r"\1", found[1])


def produce(options: Mapping[str, str], topic: str, values: Sequence[bytes], timeout_s: float = DEADLINE_S) -> None:
    """One after the other to partition 0, acks=all."""
    limits = {"message.timeout.ms": int(timeout_s * 1000), "log_level": 0}
    producer = Producer({**librdkafka_options(options), **limits})
    outcomes: list[str] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: outcomes.append(error.name() if error else "written"),
        )
    producer.flush(timeout_s + 5)
    assert outcomes == ["written"] * len(values)


def consume(options: Mapping[str, str], topic: str, count: int, *, partition: int = 0) -> list[bytes]:
    """The first ``count`` committed values."""
    consumer = Consumer(
        {
            **librdkafka_options(options),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([Place(topic, partition, 0)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=DEADLINE_S)]
    finally:
        consumer.close()


def first_error(options: Mapping[str, str]) -> str:
    """What librdkafka says first when it cannot connect; empty if it can."""
    errors: list[KafkaError] = []
    producer = Producer({**librdkafka_options(options), "error_cb": errors.append, "log_level": 0})
    eventually(lambda: _responds(producer) or producer.poll(0) or errors, "neither a connection nor an error")
    return errors[0].str() if errors else ""


def connects(options: Mapping[str, str]) -> bool:
    """Whether some broker responds to librdkafka in the end, though another one may be down."""
    producer = Producer({**librdkafka_options(options), "log_level": 0})
    eventually(lambda: _responds(producer), "no broker responds")
    return True


def is_silent(options: Mapping[str, str], seconds: float) -> bool:
    """Whether the brokers leave librdkafka without a response that long."""
    return not _responds(Producer({**librdkafka_options(options), "log_level": 0}), seconds)


def _responds(producer: Producer, seconds: float = 0.2) -> bool:
    try:
        producer.list_topics(timeout=seconds)
    except KafkaException:
        return False
    return True
