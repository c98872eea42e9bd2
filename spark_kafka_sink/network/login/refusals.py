"""Which refused logins may be accepted soon: a limit on new connections looks like a wrong password to a client.

Java's producer and librdkafka let records wait for the next attempt after every refusal. Here only those wait that may
pass, because brokers count wrong passwords and may lock the user out.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError, NetworkError
from spark_kafka_sink.network.login.token_login import RetriableLoginError, credentials_of


class PassingLoginError(NetworkError):
    """A login was refused, but perhaps only for a moment; the connection is tried again after a longer backoff."""


class _Means(Enum):
    PASSES = "another attempt may succeed"
    WRONG = "the credentials are wrong"


_OF_BROKERS: Final = (
    # aws/aws-msk-iam-auth, README: "Failed Authentication: Too many connects"; Amazon MSK, developer guide, quotas:
    # 4 to 100 new connections a second for each broker.
    ("too many connects", _Means.PASSES),
    # Kafka: PlainSaslServer, SaslServerAuthenticator (before and since re-authentication, KIP-368).
    ("invalid username or password", _Means.WRONG),
    ("due to invalid credentials with sasl mechanism", _Means.WRONG),
)
"""What brokers say with SASL_AUTHENTICATION_FAILED, in lower case. For other texts ``may_pass`` has a rule."""

_OF_TOKENS: Final = (
    "temporarily_unavailable",  # RFC 6749, 4.1.2.1; Microsoft identity platform: errors of the token endpoint
    "slow_down",  # RFC 8628, 3.5
    "aadsts50196",  # Microsoft Entra: how it throttles, beside HTTP 429
    "too many requests",  # HTTP 429, as the clouds' libraries quote it
    "throttl",  # AWS: Throttling, ThrottlingException, RequestThrottled
    "requestlimitexceeded",  # AWS, common errors
    "toomanyrequestsexception",  # AWS
)
"""What is in the text of a token endpoint, or of a cloud's library, that limits requests; in lower case."""

_MOST_KEPT: Final = 64
_accepted: dict[Hashable, None] = {}


def note_accepted(config: ProducerConfig) -> None:
    """A broker has accepted these credentials, here or on the driver."""
    _accepted.pop(key := credentials_of(config), None)
    _accepted[key] = None
    for oldest in [*_accepted][:-_MOST_KEPT]:
        _accepted.pop(oldest, None)


def may_pass(config: ProducerConfig, said: str) -> bool:
    """Whether a login that a broker refused with this text may be accepted soon.

    A text that is not in the table counts so only if the credentials have been accepted before.
    """
    known = next((means for text, means in _OF_BROKERS if text in said.lower()), None)
    return known is _Means.PASSES or (known is None and credentials_of(config) in _accepted)


def token_error(text: str, kind: type[LoginError] = LoginError) -> LoginError:
    """The error of a source of tokens: of this ``kind``, unless the text tells of a limit on requests."""
    limited = any(passing in text.lower() for passing in _OF_TOKENS)
    return RetriableLoginError(text) if limited else kind(text)
