"""``TokenLogin``: a token, fetched ahead of its end (Java: ``ExpiringCredentialRefreshingLogin``)."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from spark_kafka_sink.clock import NEVER, Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError
from spark_kafka_sink.login.login_thread import LoginThread
from spark_kafka_sink.security.login_step import LoginStep

_log = logging.getLogger("spark_kafka_sink.login")

_AFTER_FAILURE_MS: Final = 10_000.0
"""A failed refresh is repeated after this time, as in Java. Meanwhile a failed first login is the answer to all."""


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. Times in ms since 1970; ``issued_at``: None if the token does not say."""

    value: str = field(repr=False)
    expires_at: float
    issued_at: float | None = None


class RetriableLoginError(LoginError):
    """The next attempt may get a token: no connection, a timeout, an overloaded server."""


class TokenSource(Protocol):
    """Where tokens come from. ``what`` follows "waiting for": "a token of <option> <value>"."""

    what: str

    def fetch(self) -> Token:
        """Called on the login's thread; may block, but not without end. Reads its credentials now, not earlier.

        Raises ``LoginError`` with a text that names the option to look at; ``RetriableLoginError`` to be called again.
        """


def refresh_time(token: Token, config: ProducerConfig, now: float, random: Random) -> float:
    """When to fetch the next token (as ``now``, ms since 1970), by ``sasl.login.refresh.*`` as Java does."""
    if token.expires_at <= now:
        return now + _AFTER_FAILURE_MS
    share = config.sasl_login_refresh_window_factor + config.sasl_login_refresh_window_jitter * random.random()
    least = config.sasl_login_refresh_min_period_seconds * 1000.0
    buffer = config.sasl_login_refresh_buffer_seconds * 1000.0
    if now + least + buffer > token.expires_at:
        return now + (token.expires_at - now) * share
    begin = now if token.issued_at is None else token.issued_at
    proposed = begin + (token.expires_at - begin) * share
    return min(max(proposed, now + least), token.expires_at - buffer)


class TokenLogin:
    """Fetches tokens of one source on a thread of its own. Any thread may call ``token``."""

    def __init__(self, config: ProducerConfig, source: TokenSource, clock: Clock, random: Random) -> None:
        self._config = config
        self._source = source
        self._clock = clock
        self._random = random
        self._thread = LoginThread(self, clock, f"pykafka-login-{config.sasl_mechanism}")
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._waiting: LoginStep[Token] | None = None
        self._failed_step: LoginStep[Token] | None = None
        self._failed_at = 0.0
        # Of the thread: when to fetch, and the attempts since the first of a series (monotonic ms).
        self._due_at = NEVER
        self._attempts = 0
        self._began = 0.0

    def token(self) -> LoginStep[Token]:
        """A step that ends with a token; done already while the last token is valid."""
        with self._lock:
            if self._token is not None and self._clock.epoch_ms() < self._token.expires_at:
                step: LoginStep[Token] = LoginStep(self._source.what)
                step.succeed(self._token)
                return step
            if self._failed_step is not None and self._clock.now() < self._failed_at + _AFTER_FAILURE_MS:
                return self._failed_step
            if self._waiting is None:
                self._waiting = LoginStep(self._source.what)
            step = self._waiting
        self._thread.wake()
        return step

    def close(self) -> None:
        """No token is fetched any more."""
        self._thread.close()

    def run_once(self, now: float) -> float:
        with self._lock:
            if self._waiting is not None and self._attempts == 0:
                self._due_at = now
        if now < self._due_at:
            return self._due_at
        if self._attempts == 0:
            self._began = now
        self._attempts += 1
        try:
            token = self._source.fetch()
        except LoginError as error:
            self._failed(error, self._clock.now())
        except (SaslAuthenticationError, ConfigError) as error:
            self._failed(LoginError(str(error)), self._clock.now())
        except Exception as error:  # its text and its trace may hold credentials
            text = f"{self._source.what} could not be fetched: {type(error).__name__}"
            self._failed(LoginError(text), self._clock.now())
        else:
            self._succeeded(token, self._clock.now())
        return self._due_at

    def _succeeded(self, token: Token, now: float) -> None:
        wall = self._clock.epoch_ms()
        self._attempts = 0
        self._due_at = now + refresh_time(token, self._config, wall, self._random) - wall
        _log.debug("Got %s, valid for %.0f s", self._source.what, (token.expires_at - wall) / 1000.0)
        with self._lock:
            self._token, self._failed_step = token, None
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.succeed(token)

    def _failed(self, error: LoginError, now: float) -> None:
        longest = self._config.sasl_login_retry_backoff_max_ms
        pause = min(self._config.sasl_login_retry_backoff_ms * 2.0 ** min(self._attempts - 1, 30), longest)
        if isinstance(error, RetriableLoginError) and now + pause < self._began + longest:
            self._due_at = now + pause
            return
        self._attempts = 0
        with self._lock:
            has_token = self._token is not None
            waiting, self._waiting = self._waiting, None
            if waiting is not None:
                self._failed_step, self._failed_at = waiting, now
        self._due_at = now + _AFTER_FAILURE_MS if has_token else NEVER
        if has_token:
            _log.warning("The login could not be renewed, next attempt in %.0f s: %s", _AFTER_FAILURE_MS / 1000, error)
        if waiting is not None:
            waiting.fail(error)
