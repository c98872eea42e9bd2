"""Logins whose password a config provider has: read at each login, in the process that logs in."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.certificates import CertificateAuthority
from tests.support.waiting import DEADLINE_S

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
CREDENTIALS = ("sasl.jaas.config", "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates")


def write(config: object, topic: str, value: bytes) -> None:
    with KafkaProducer(config) as producer:
        producer.send(ProducerRecord(topic, value, partition=0)).result(DEADLINE_S)


def with_placeholders(options: dict[str, str], folder: Path) -> dict[str, str]:
    """``options`` with each credential as a whole in a file of ``folder``."""
    moved = {option: value for option, value in options.items() if option in CREDENTIALS}
    for option, value in moved.items():
        (folder / option).write_text(value)
    return {**options, **{option: f"${{dir:{folder}:{option}}}" for option in moved}}


def login_of_file(broker: TestBroker, file: Path) -> ProducerConfig:
    placeholder = f"${{file:{file}:password}}"
    jaas = f'{MODULE} required username="client" password="{placeholder}";'
    return ProducerConfig.parse({
        **broker.client_options("SASL"), "sasl.jaas.config": jaas, "max.block.ms": 20_000,
    })  # fmt: skip


def test_each_login_reads_the_password_anew_from_the_pickled_placeholder(
    secure_broker: TestBroker, tmp_path: Path
) -> None:
    secure_broker.create_topic("t")
    file = tmp_path / "kafka.properties"
    file.write_text("password=wrong-secret")
    pickled = pickle.dumps(login_of_file(secure_broker, file))
    with pytest.raises(SaslAuthenticationError, match="refused the login"):
        write(pickle.loads(pickled), "t", b"1")
    file.write_text("password=client-secret")
    write(pickle.loads(pickled), "t", b"1")
    assert b"client-secret" not in pickled


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"kafka\.properties cannot be read: No such file or directory"),
        ("user=client", r"kafka\.properties:password}, for which there is no value"),
        ('password=hunter2" x', r"has no '=' after the key of option number 3.*values of its placeholders: a quote"),
        ("password=hunter2\\u0000", r"has a NUL character"),
    ],
)
def test_a_password_that_cannot_be_had_is_one_clear_error_at_the_login(
    secure_broker: TestBroker, tmp_path: Path, content: str | None, said: str
) -> None:
    secure_broker.create_topic("t")
    file = tmp_path / "kafka.properties"
    config = login_of_file(secure_broker, file)
    if content is not None:
        file.write_text(content)
    with pytest.raises(SaslAuthenticationError, match=said) as raised:
        write(config, "t", b"1")
    assert "hunter2" not in str(raised.value)
    assert secure_broker.authentications.failed() == []


def test_another_certificate_authority_in_the_provider_is_not_trusted(
    secure_broker: TestBroker, tmp_path: Path
) -> None:
    options = with_placeholders(secure_broker.client_options("TLS"), tmp_path)
    (tmp_path / "ssl.truststore.certificates").write_text(CertificateAuthority().certificate)
    with pytest.raises(Exception, match="certificate of .* is refused"):
        write({**options, "max.block.ms": "20000"}, "t", b"1")
