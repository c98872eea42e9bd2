"""SASL/OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a token of a login, and extensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.oauth_rules import extension_faults
from spark_kafka_sink.common.foreign_text import shown
from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network.login.credentials import jaas_options
from spark_kafka_sink.network.login.sasl import Exchange
from spark_kafka_sink.network.login.token_login import SHARED_LOGINS, Token, TokenLogin, TokenSource

EXTENSION: Final = "extension_"
_SEPARATOR: Final = "\x01"
_LONGEST_SHOWN: Final = 500


class OAuthBearer:
    """``source``: the tokens; shared with the other clients of the process that have the same credentials."""

    def __init__(self, config: ProducerConfig, source: TokenSource) -> None:
        self._config = config
        self._source = source
        self._login: TokenLogin[Token] | None = None

    def exchange(self, host: str) -> Exchange:
        if self._login is None:
            self._login = SHARED_LOGINS.acquire(self._config, self._source)
        step = self._login.token()
        yield step
        challenge = yield initial_response(step.result().value, extensions(self._config))
        if challenge:
            # The broker names its reason, expects this byte and then refuses the login.
            yield _SEPARATOR.encode()
            reason = shown(challenge.decode(errors="replace"), _LONGEST_SHOWN)
            raise SaslAuthenticationError(f"it was given a token that the broker refused: {reason}")

    def close(self) -> None:
        if self._login is not None:
            self._login = None
            SHARED_LOGINS.release(self._config)


def initial_response(token: str, extensions: Mapping[str, str]) -> bytes:
    """The client's first message."""
    pairs = {"auth": f"Bearer {token}", **extensions}
    joined = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs.items())
    return f"n,,{_SEPARATOR}{joined}{_SEPARATOR}".encode()


def extensions(config: ProducerConfig) -> dict[str, str]:
    """``extension_<name>`` of the login module, with values for placeholders; without one, none.

    Raises ``SaslAuthenticationError`` for what a message cannot carry: a value with a separator would add fields to it.
    """
    options = jaas_options(config)
    if faults := extension_faults(options):
        raise SaslAuthenticationError(f"sasl.jaas.config {faults[0].rstrip('.')}")
    return {name.removeprefix(EXTENSION): value for name, value in options.items() if name.startswith(EXTENSION)}
