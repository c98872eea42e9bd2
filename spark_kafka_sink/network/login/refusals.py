"""The refused logins that may be accepted soon, because to a client a limit on new connections looks like a wrong
password. Java's producer and librdkafka let records wait for the next attempt after every refusal. Here records wait
only after a refusal that may pass, because brokers count wrong passwords and may lock the user out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.recently_used import remember
from spark_kafka_sink.errors import LoginError, NetworkError
from spark_kafka_sink.network.login.token_login import RetriableLoginError, credentials_of


class PassingLoginError(NetworkError):
    """A login was refused, but perhaps only for a moment; the connection is tried again after a longer backoff."""


_LIMITS: Final = (
    # aws/aws-msk-iam-auth, README: "Failed Authentication: Too many connects"; Amazon MSK, developer guide, quotas:
    # 4 to 100 new connections a second for each broker.
    "too many connects",
)
"""Brokers' texts with SASL_AUTHENTICATION_FAILED when they limit new connections, in lower case."""

_WRONG: Final = (
    # Kafka: PlainSaslServer, SaslServerAuthenticator (before and since re-authentication, KIP-368).
    "invalid username or password",
    "due to invalid credentials with sasl mechanism",
)
"""Brokers' texts about wrong credentials, in lower case."""

_OF_TOKENS: Final = (
    "temporarily_unavailable",  # RFC 6749, 4.1.2.1; Microsoft identity platform: errors of the token endpoint
    "slow_down",  # RFC 8628, 3.5
    "aadsts50196",  # Microsoft Entra, when it throttles with another status than HTTP 429
    "too many requests",  # HTTP 429, as the clouds' libraries quote it
    "throttl",  # AWS: Throttling, ThrottlingException, RequestThrottled
    "requestlimitexceeded",  # AWS, common errors
    "toomanyrequestsexception",  # AWS
)
"""Words in the error texts of token endpoints, and of the clouds' libraries, when requests are limited; in lower
case."""

_MAX_KEPT: Final = 64
_accepted: dict[Hashable, bool] = {}


def note_accepted(config: ProducerConfig) -> None:
    """Notes that a broker has accepted these credentials, here or on the driver."""
    remember(_accepted, credentials_of(config), True, _MAX_KEPT)


def may_pass(config: ProducerConfig, said: str) -> bool:
    """Whether a login that a broker refused with this text may be accepted soon: after a limit, and with an unknown
    text if the credentials have been accepted before.
    """
    said = said.lower()
    if any(text in said for text in _WRONG):
        return False
    return any(text in said for text in _LIMITS) or credentials_of(config) in _accepted


def token_error(text: str, kind: type[LoginError] = LoginError) -> LoginError:
    """The error of a source of tokens, of this ``kind`` unless the text is about a limit on requests."""
    limited = any(passing in text.lower() for passing in _OF_TOKENS)
    return RetriableLoginError(text) if limited else kind(text)
