"""The table of mechanisms: each row is one class, which has the rules of its options and its messages."""

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import BUILT_IN, built_in, credentials_fault, parse_jaas


@pytest.mark.parametrize("mechanism", BUILT_IN)
def test_each_row_has_what_rules_and_connections_ask_for(mechanism):
    row = built_in(mechanism)
    assert callable(row.exchange)
    assert callable(row.close)
    assert row.sends in ("", "password", "token")
    example = parse_jaas(row.example)
    assert example.name == row.login_modules[0]
    assert credentials_fault(mechanism, example) is None


def test_a_new_mechanism_is_one_class_and_one_row(monkeypatch):
    from spark_kafka_sink.common.config import security_rules
    from spark_kafka_sink.network.login.plain import Plain
    from spark_kafka_sink.network.login.sasl import sasl_mechanism

    monkeypatch.setattr(security_rules, "BUILT_IN", {**BUILT_IN, "NEW": BUILT_IN["PLAIN"]})
    jaas = f'{Plain.login_modules[0]} required username="u" password="p";'
    config = ProducerConfig.parse({
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "new", "sasl.jaas.config": jaas,
    })  # fmt: skip
    assert next(sasl_mechanism(config).exchange("b")) == b"\0u\0p"
