"""Logins with tokens and tickets: fetched ahead of their end, on threads of their own, shared by the process's clients.

Java: ``ExpiringCredentialRefreshingLogin``, ``LoginManager``. A thread of a login keeps a sender from waiting for an
identity provider or a KDC.
"""

from __future__ import annotations

import base64
import logging
import os
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from spark_kafka_sink.common.clock import NEVER, Clock, SystemClock, exponential_delay
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.waiting import start_thread
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.sasl import LoginStep

_log = logging.getLogger("spark_kafka_sink.login")

_AFTER_FAILURE_MS: Final = 10_000.0
"""The time after which a failed refresh is repeated, as in Java. Until then every client gets the error of a failed
first login."""
_MIN_PAUSE_MS: Final = 1_000.0
"""The shortest time between two fetches. Tokens may live for milliseconds, and each connection needs a valid one."""
_MAX_WAIT_MS: Final = 3_600_000.0
"""The longest wait, because the timeout of an event cannot be infinite."""


class Expiring(Protocol):
    """A token or a ticket. Times are in ms since 1970. ``issued_at``: None if it is not known."""

    @property
    def expires_at(self) -> float: ...

    @property
    def issued_at(self) -> float | None: ...


A = TypeVar("A")
R = TypeVar("R")
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
    """A failed login whose next attempt may succeed, because there was no connection, a timeout or an overloaded
    server."""


class RefusedLoginError(LoginError):
    """The source of tokens refused the client's credentials; they are the same on every machine."""


class ExpiringSource(Protocol[T_co]):
    """A source of tokens or tickets. ``what`` follows "waiting for", for example "a token of <option> <value>"."""

    what: str

    def fetch(self) -> T_co:
        """Gets a token or ticket, and reads the credentials for it each time. Must return in bounded time.

        The login's thread calls it. Raises ``LoginError`` with a text that names the option to look at; after
        ``RetriableLoginError`` it is called again.
        """


class TokenSource(ExpiringSource[Token], Protocol):
    """A source of tokens. The entry point that ``saslTokenProvider`` names makes one from a ``ProducerConfig``."""


class RefreshWindow(NamedTuple):
    """The options for when the next token or ticket is fetched. ``factor`` and ``jitter``: shares of its life; the
    others: ms."""

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
        """The time to fetch the next one, computed as in Java. Like ``now``, it is in ms since 1970."""
        if token.expires_at <= now:
            return now + _AFTER_FAILURE_MS
        share = self.factor + self.jitter * random.random()
        if now + self.least + self.buffer > token.expires_at:
            return now + (token.expires_at - now) * share
        begin = now if token.issued_at is None else token.issued_at
        proposed = begin + (token.expires_at - begin) * share
        return min(max(proposed, now + self.least), token.expires_at - self.buffer)


@dataclass(eq=False, repr=False)
class Login(Generic[T]):
    """Fetches the tokens or tickets of one source on a thread of its own, each before the last one ends.

    All clients of a process with the same credentials share a login. Thread-safe.
    """

    _lock: ClassVar[Any]
    _shared: ClassVar[dict[Hashable, Login[Any]]]

    _config: ProducerConfig
    _source: ExpiringSource[T]
    _window: RefreshWindow
    _clock: Clock
    _random: Random
    _users: WeakSet[object] = field(default_factory=WeakSet)  # a client that was never closed does not count for ever
    _thread: threading.Thread | None = None
    _due: threading.Event = field(default_factory=threading.Event)
    _closed: bool = False
    _token: T | None = None
    # What connections wait for, or what they waited for until it failed at ``_failed_at``.
    _step: LoginStep[T] | None = None
    _failed_at: float = 0.0
    # Only the thread uses these: when to fetch, and the attempts since the first of a series (monotonic ms).
    _due_at: float = NEVER
    _attempts: int = 0
    _began: float = -NEVER

    @classmethod
    def shared(cls, user: object, config: ProducerConfig, source: ExpiringSource[T], window: RefreshWindow) -> Login[T]:
        """The process's login with these credentials, until ``user`` closes it. Its first user's ``source`` is used."""
        key = credentials_of(config)
        with cls._lock:
            if key not in cls._shared:
                cls._shared[key] = Login(config, source, window, SystemClock(), Random())
            cls._shared[key]._users.add(user)
            return cls._shared[key]

    @classmethod
    def begin(cls) -> None:
        """Begins without logins. Called in the child of a fork, where none of its parent's threads run, and where the
        copy of the lock may be held for ever.
        """
        cls._lock = threading.RLock()  # a signal handler may close its client in the middle of ``token``
        cls._shared = {}

    def close(self, user: object) -> None:
        """Ends the use by ``user``; after the last one no token is fetched. Does not wait for the thread."""
        key = credentials_of(self._config)
        with self._lock:
            self._users.discard(user)
            if self._users or self._shared.get(key) is not self:  # shared before a fork
                return
            del self._shared[key]
        self._closed = True
        self._due.set()

    def token(self) -> LoginStep[T]:
        """A step whose result is a token. It is done already while the last token is valid."""
        with self._lock:
            if self._token is not None and self._clock.epoch_ms() < self._token.expires_at:
                step: LoginStep[T] = LoginStep(self._source.what)
                step.succeed(self._token)
                return step
            has_failed = self._step is not None and self._step.done
            if self._step is None or (has_failed and self._clock.now() >= self._failed_at + _AFTER_FAILURE_MS):
                self._step = LoginStep(self._source.what)
            step = self._step
            if not step.done:
                self._wake()
        return step

    def _wake(self) -> None:
        if self._thread is None and not self._closed:
            name = f"pykafka-login-{self._config.sasl_mechanism}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            start_thread(thread)
            self._thread = thread
        self._due.set()

    def _run(self) -> None:
        while True:
            self._due.clear()
            if self._closed:  # read after ``_due`` is cleared, as ``close`` writes it before it sets ``_due``
                return
            try:
                wake_at = self.run_once(self._clock.now())
            except Exception:
                _log.exception("Uncaught error in %s; it goes on", threading.current_thread().name)
                wake_at = NEVER
            self._due.wait(min(max(0.0, wake_at - self._clock.now()), _MAX_WAIT_MS) / 1000.0)

    def run_once(self, now: float) -> float:
        """Fetches if that is due at ``now``, and returns when to call again at the latest (both monotonic ms)."""
        with self._lock:
            if self._step is not None and not self._step.done and self._attempts == 0:
                self._due_at = max(now, self._began + _MIN_PAUSE_MS)
        if now < self._due_at:
            return self._due_at
        if self._attempts == 0:
            self._began = now
        self._attempts += 1
        try:
            token = self._source.fetch()
        except Exception as error:
            self._failed(_login_error(f"{self._source.what} could not be fetched", error), self._clock.now())
        else:
            self._succeeded(token, self._clock.now())
        return self._due_at

    def _succeeded(self, token: T, now: float) -> None:
        wall = self._clock.epoch_ms()
        self._attempts = 0
        refresh_at = now + self._window.refresh_time(token, wall, self._random) - wall
        self._due_at = max(refresh_at, self._began + _MIN_PAUSE_MS)
        _log.debug("Got %s, valid for %.0f s", self._source.what, (token.expires_at - wall) / 1000.0)
        with self._lock:
            self._token = token
            step, self._step = self._step, None
        if step is not None and not step.done:
            step.succeed(token)

    def _failed(self, error: LoginError, now: float) -> None:
        longest = self._config.sasl_login_retry_backoff_max_ms
        pause = exponential_delay(self._config.sasl_login_retry_backoff_ms, longest, self._attempts - 1)
        if isinstance(error, RetriableLoginError) and now + pause < self._began + longest:
            self._due_at = now + pause
            return
        self._attempts = 0
        self._due_at = NEVER
        if self._token is not None:
            self._due_at = now + _AFTER_FAILURE_MS
            _log.warning(
                "The login could not be renewed. The next attempt is in %.0f s. The reason: %s",
                _AFTER_FAILURE_MS / 1000,
                error,
            )
        step = self._step
        if step is not None and not step.done:
            self._failed_at = now
            step.fail(error)


Login.begin()
os.register_at_fork(after_in_child=Login.begin)


def run_on_thread(what: str, work: Callable[[A], R], argument: A) -> LoginStep[R]:
    """A step whose result is what ``work`` returns, on a thread of its own. ``work`` must return in bounded time."""
    step: LoginStep[R] = LoginStep(what)

    def run() -> None:
        try:
            result = work(argument)
        except Exception as error:
            step.fail(_login_error(f"{what} could not be obtained", error))
        else:
            step.succeed(result)

    start_thread(threading.Thread(target=run, name="pykafka-login-step", daemon=True))
    return step


def _login_error(what: str, error: Exception) -> LoginError:
    """The error for callers that wait. An unexpected ``error`` gives it neither text nor trace, which may hold
    credentials."""
    if isinstance(error, LoginError):
        return error
    if isinstance(error, (SaslAuthenticationError, ConfigError)):
        return LoginError(str(error))
    return LoginError(f"{what}: {type(error).__name__}")


def credentials_of(config: ProducerConfig) -> Hashable:
    """The options that a login depends on. They include the brokers' names, which have AWS's region."""
    sasl = [getattr(config, field.name) for field in fields(config) if field.name.startswith("sasl_")]
    return (config.bootstrap_servers, config.config_providers, *sasl)
