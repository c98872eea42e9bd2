"""Tokens for Google Managed Service for Apache Kafka: an access token in the form of a JWT.

Google's counterpart is ``GcpLoginCallbackHandler``. It uses Google's application default credentials.
"""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any, Final

import google.auth
import urllib3
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.urllib3 import Request

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.refusals import token_error
from spark_kafka_sink.network.login.token_login import RetriableLoginError, Token, base64url

_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_HEADER: Final = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}


class GcpTokens:
    """Fetches a new access token each time."""

    what = "an access token of Google"

    def __init__(self, config: ProducerConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()

    def fetch(self) -> Token:
        timeout = urllib3.Timeout(
            self._config.sasl_login_connect_timeout_ms / 1000.0, self._config.sasl_login_read_timeout_ms / 1000.0
        )
        try:
            with urllib3.PoolManager(timeout=timeout, retries=False) as http:
                credentials: Any = google.auth.default(scopes=[_SCOPE])[0]
                credentials.refresh(Request(http))  # type: ignore[no-untyped-call]
        except GoogleAuthError as error:
            kind = RetriableLoginError if error.retryable else LoginError
            raise token_error(f"Google gave no access token: {type(error).__name__}: {error.args[0]}", kind) from None
        return wrap_token(credentials, self._clock.epoch_ms())


def wrap_token(credentials: Any, now: float) -> Token:
    """Three parts like a JWT, but the third is the access token instead of a signature. ``now`` is in ms since 1970."""
    expires = int(credentials.expiry.replace(tzinfo=UTC).timestamp())
    claims = {"exp": expires, "iat": int(now // 1000), "scope": "kafka", "sub": _subject(credentials)}
    parts = (json.dumps(_HEADER, separators=(",", ":")), json.dumps(claims, separators=(",", ":")), credentials.token)
    value = ".".join(base64url(part.encode()) for part in parts)
    return Token(value, expires * 1000.0, now)


def _subject(credentials: Any) -> str:
    """The e-mail address of the service account, or of the user if Google's files have it."""
    for name in ("service_account_email", "account"):
        if subject := getattr(credentials, name, None):
            return str(subject)
    raise LoginError(
        f"Google's credentials ({type(credentials).__name__}) do not name an account; use those of a service account"
    )
