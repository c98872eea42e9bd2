"""The credentials of a login. They are read here at each authentication, never before: they may change."""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.config.jaas import LoginModule, parse_jaas
from spark_kafka_sink.errors import SaslAuthenticationError


class Credentials(NamedTuple):
    """User and password of ``PlainLoginModule`` and ``ScramLoginModule``.

    ``is_token``: they are the id and the HMAC of a delegation token (``tokenauth=true``).
    """

    username: str
    password: str
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, password=[hidden])"


def login_module(config: ProducerConfig) -> LoginModule:
    """The login module of ``sasl.jaas.config``, whose rule has checked it."""
    if config.sasl_jaas_config is None:
        raise SaslAuthenticationError("sasl.jaas.config is not set")
    return parse_jaas(config.sasl_jaas_config.value)


def user_credentials(config: ProducerConfig) -> Credentials:
    """``username`` and ``password`` of the login module."""
    options = login_module(config).options
    is_token = options.get("tokenauth", "").lower() == "true"
    return Credentials(options["username"], options["password"], is_token)
