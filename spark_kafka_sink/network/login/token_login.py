"""Logins with tokens and tickets: fetched ahead of their end, on threads of their own, shared by the process's clients.

Java: ``ExpiringCredentialRefreshingLogin``, ``LoginManager``. A thread of a login keeps a sender from waiting for an
identity provider or a KDC.
"""

from __future__ import annotations

import base64
import logging
import os
import threading
from collections.abc import Hashable
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from spark_kafka_sink.common.backoff import exponential_delay
from spark_kafka_sink.common.clock import NEVER, Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import start_thread
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.sasl import LoginStep

_log = logging.getLogger("spark_kafka_sink.login")

_AFTER_FAILURE_MS: Final = 10_000.0
"""After this time a failed refresh is repeated, as in Java. Until then all get the error of a failed first login."""
_LEAST_PAUSE_MS: Final = 1_000.0
"""The shortest time between two fetches. Tokens may live for milliseconds, and each connection needs a valid one."""
_LONGEST_MS: Final = 3_600_000.0
"""The longest wait, because the timeout of an event cannot be infinite."""


class Login(Protocol):
    """Work for a login's thread: fetching tokens ahead of their end, or steps of Kerberos."""

    def run_once(self, now: float) -> float:
        """Does what is due at ``now``, and returns when to call again at the latest (both monotonic ms).

        Must return in bounded time. Completes the waiter's ``LoginStep``, also on failure, and never raises.
        """


class LoginThread:
    """A daemon thread that calls ``login.run_once`` when it is due, and after ``wake``. Its methods are thread-safe."""

    def __init__(self, login: Login, clock: Clock, name: str) -> None:
        self._login = login
        self._clock = clock
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._due = threading.Event()
        self._closed = False

    def wake(self) -> None:
        """Makes the thread run ``run_once`` soon. The first call starts the thread."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                start_thread(self._thread)
        self._due.set()

    def close(self) -> None:
        """Ends the thread after its current work, without waiting for that."""
        self._closed = True
        self._due.set()

    def _run(self) -> None:
        while not self._closed:
            self._due.clear()
            try:
                wake_at = self._login.run_once(self._clock.now())
            except Exception:
                _log.exception("Uncaught error in %s; it goes on", self._name)
                wake_at = self._clock.now() + _LONGEST_MS
            self._due.wait(min(max(0.0, wake_at - self._clock.now()), _LONGEST_MS) / 1000.0)


class Expiring(Protocol):
    """A token or a ticket. Times are in ms since 1970; ``issued_at`` is None if it does not say."""

    @property
    def expires_at(self) -> float: ...

    @property
    def issued_at(self) -> float | None: ...


T = TypeVar("T", bound=Expiring)
T_co = TypeVar("T_co", bound=Expiring, covariant=True)


@dataclass(frozen=True, slots=True)
class Token:
    """An access token."""

    value: str = field(repr=False)
    expires_at: float
    issued_at: float | None = None


def base64url(data: bytes) -> str:
    """Base64 for URLs without padding, as in a JWT (RFC 7515)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class RetriableLoginError(LoginError):
    """A login failed, but the next attempt may succeed: no connection, a timeout, an overloaded server."""


class RefusedLoginError(LoginError):
    """The source of tokens refused the client's credentials; they are the same on every machine."""


class ExpiringSource(Protocol[T_co]):
    """Where tokens or tickets come from. ``what`` follows "waiting for": "a token of <option> <value>"."""

    what: str

    def fetch(self) -> T_co:
        """Gets a token or ticket, and reads the credentials for it each time. Must return in bounded time.

        The login's thread calls it. Raises ``LoginError`` with a text that names the option to look at; after
        ``RetriableLoginError`` it is called again.
        """


class TokenSource(ExpiringSource[Token], Protocol):
    """Where tokens come from. Entry points for ``saslTokenProvider`` make one."""


class RefreshWindow(NamedTuple):
    """When the next token or ticket is fetched. ``factor`` and ``jitter`` are shares of its life, the others are ms."""

    factor: float
    jitter: float
    least: float
    buffer: float

    @staticmethod
    def of_tokens(config: ProducerConfig) -> RefreshWindow:
        """The window of the options ``sasl.login.refresh.*``."""
        return RefreshWindow(
            config.sasl_login_refresh_window_factor,
            config.sasl_login_refresh_window_jitter,
            config.sasl_login_refresh_min_period_seconds * 1000.0,
            config.sasl_login_refresh_buffer_seconds * 1000.0,
        )

    def refresh_time(self, token: Expiring, now: float, random: Random) -> float:
        """When to fetch the next one, as Java does. Like ``now``, it is in ms since 1970."""
        if token.expires_at <= now:
            return now + _AFTER_FAILURE_MS
        share = self.factor + self.jitter * random.random()
        if now + self.least + self.buffer > token.expires_at:
            return now + (token.expires_at - now) * share
        begin = now if token.issued_at is None else token.issued_at
        proposed = begin + (token.expires_at - begin) * share
        return min(max(proposed, now + self.least), token.expires_at - self.buffer)


class TokenLogin(Generic[T]):
    """Fetches the tokens or tickets of one source on a thread of its own, each before the last one ends. Any thread may
    call ``token``.
    """

    def __init__(
        self, config: ProducerConfig, source: ExpiringSource[T], window: RefreshWindow, clock: Clock, random: Random
    ) -> None:
        self._config = config
        self._source = source
        self._window = window
        self._clock = clock
        self._random = random
        self._thread = LoginThread(self, clock, f"pykafka-login-{config.sasl_mechanism}")
        self._lock = threading.Lock()
        self._token: T | None = None
        self._waiting: LoginStep[T] | None = None
        self._failed_step: LoginStep[T] | None = None
        self._failed_at = 0.0
        # Only the thread uses these: when to fetch, and the attempts since the first of a series (monotonic ms).
        self._due_at = NEVER
        self._attempts = 0
        self._began = -NEVER

    def token(self) -> LoginStep[T]:
        """A step whose result is a token. It is done already while the last token is valid."""
        with self._lock:
            if self._token is not None and self._clock.epoch_ms() < self._token.expires_at:
                step: LoginStep[T] = LoginStep(self._source.what)
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
        """Fetches no further token."""
        self._thread.close()

    def run_once(self, now: float) -> float:
        with self._lock:
            if self._waiting is not None and self._attempts == 0:
                self._due_at = max(now, self._began + _LEAST_PAUSE_MS)
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

    def _succeeded(self, token: T, now: float) -> None:
        wall = self._clock.epoch_ms()
        self._attempts = 0
        refresh_at = now + self._window.refresh_time(token, wall, self._random) - wall
        self._due_at = max(refresh_at, self._began + _LEAST_PAUSE_MS)
        _log.debug("Got %s, valid for %.0f s", self._source.what, (token.expires_at - wall) / 1000.0)
        with self._lock:
            self._token, self._failed_step = token, None
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.succeed(token)

    def _failed(self, error: LoginError, now: float) -> None:
        longest = self._config.sasl_login_retry_backoff_max_ms
        pause = exponential_delay(self._config.sasl_login_retry_backoff_ms, longest, self._attempts - 1)
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


@dataclass(slots=True)
class _Shared:
    login: TokenLogin[Any]
    users: int


class SharedLogins:
    """The logins of this process, one for each set of credentials. Each ends with its last user. Thread-safe."""

    def __init__(self) -> None:
        self._begin()
        # The child of a fork has none of its parent's threads, and its copy of the lock may be held for good.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Hashable, _Shared] = {}

    def acquire(self, config: ProducerConfig, source: ExpiringSource[T], window: RefreshWindow) -> TokenLogin[T]:
        """The login of these credentials. Its first user's ``source`` fetches the tokens."""
        key = _credentials(config)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                shared = self._shared[key] = _Shared(TokenLogin(config, source, window, SystemClock(), Random()), 0)
            shared.users += 1
            return shared.login

    def release(self, config: ProducerConfig) -> None:
        key = _credentials(config)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                return  # acquired before a fork
            shared.users -= 1
            if shared.users:
                return
            del self._shared[key]
        shared.login.close()


SHARED_LOGINS = SharedLogins()


class LazyLogin(Generic[T]):
    """The shared login of a client, which uses it from its first ``token`` until ``close``. One thread."""

    def __init__(self, config: ProducerConfig, source: ExpiringSource[T], window: RefreshWindow) -> None:
        self._config = config
        self._source = source
        self._window = window
        self._login: TokenLogin[T] | None = None

    def token(self) -> LoginStep[T]:
        if self._login is None:
            self._login = SHARED_LOGINS.acquire(self._config, self._source, self._window)
        return self._login.token()

    def close(self) -> None:
        if self._login is not None:
            self._login = None
            SHARED_LOGINS.release(self._config)


def _credentials(config: ProducerConfig) -> Hashable:
    """The options that a login depends on. They include the brokers' names, which have AWS's region."""
    sasl = [getattr(config, field.name) for field in fields(config) if field.name.startswith("sasl_")]
    return (config.bootstrap_servers, config.config_providers, *sasl)
