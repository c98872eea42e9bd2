"""What of a login is shown, and what is not."""

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.login.plain import user_credentials
from spark_kafka_sink.network.login.sasl import username

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def config(jaas):
    return ProducerConfig.parse({
        "bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("jaas", "shown"),
    [
        (f'{PLAIN} required username="alice" password="p";', "alice"),
        (f'{PLAIN} required username="${{env:API_KEY}}" password="p";', "${env:API_KEY}"),
        ("${env:JAAS}", None),
    ],
)
def test_messages_name_the_user_but_show_no_value_of_a_config_provider(monkeypatch, jaas, shown):
    monkeypatch.setenv("API_KEY", "hunter2")
    monkeypatch.setenv("JAAS", f'{PLAIN} required username="hunter2" password="p";')
    assert username(config(jaas)) == shown
    assert user_credentials(config(jaas)).username == ("hunter2" if "$" in jaas else "alice")
