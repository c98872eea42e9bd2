"""Options of the producer as tests parse them: a warning is an error, and no fault shows the password ``hunter2``."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError

SERVERS = {"bootstrap.servers": "localhost:9092"}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.client.credentials.client.id": "id",
    "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
}


def parse(options: Mapping[str, object], prefix: str = "") -> ProducerConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ProducerConfig.parse({**SERVERS, **options}, prefix)


def faults(options: Mapping[str, object], prefix: str = "") -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.parse({**SERVERS, **options}, prefix)
    assert "hunter2" not in str(raised.value)
    return raised.value.faults


def fault(options: Mapping[str, object], prefix: str = "") -> str:
    (only,) = faults(options, prefix)
    return only
