"""``SaslMechanism``, the interface of a mechanism to a connection, the ``LoginStep`` that its exchange may wait for,
and its login module.

The credentials in ``sasl.jaas.config`` may change, so each authentication reads them again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import GROUP, JaasError, LoginModule, built_in, parse_jaas
from spark_kafka_sink.common.waiting import Wakeable
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError

T = TypeVar("T")

WITH_VALUES: Final = (
    " (with the values of its placeholders: a quote, a backslash or a line end in a value must be escaped)"
)
"""The end of errors about a text that the rules have accepted, because they saw it with placeholders."""


class LoginStep(Generic[T]):
    """A token to fetch, or a step of Kerberos. A handshake yields it and continues when a login's thread has done it.

    ``what`` follows "waiting for" in errors and names the option to look at.
    """

    __slots__ = ("_error", "_result", "_sleepers", "done", "what")

    def __init__(self, what: str) -> None:
        self.what: Final = what
        self.done = False
        self._result: T | None = None
        self._error: LoginError | None = None
        self._sleepers: list[Wakeable] = []

    def succeed(self, result: T) -> None:
        self._result = result
        self._end()

    def fail(self, error: LoginError) -> None:
        self._error = error
        self._end()

    def result(self) -> T:
        """The result of a step that is done. Raises ``LoginError``."""
        if self._error is not None:
            raise LoginError(str(self._error)) from self._error
        assert self.done
        return self._result  # type: ignore[return-value]  # None is one of T's values where a step has no result

    def wake_when_done(self, sleeper: Wakeable) -> None:
        # A: the waiting thread adds the sleeper, then reads `done`. B: the login's thread sets `done`, then wakes the
        # sleepers. One of them sees the other.
        self._sleepers.append(sleeper)
        if self.done:
            sleeper.wakeup()

    def _end(self) -> None:
        self.done = True
        for sleeper in tuple(self._sleepers):
            sleeper.wakeup()


Exchange: TypeAlias = Generator[bytes | LoginStep[Any], bytes, None]


class SaslMechanism(Protocol):
    """A mechanism, for all connections of one client. The thread that owns the connections calls it.

    An entry point of the group ``spark_kafka_sink.sasl`` makes one of a ``ProducerConfig``; its name is that
    of the mechanism.
    """

    def exchange(self, host: str) -> Exchange:
        """One authentication with the broker at ``host``, without I/O: yields the client's messages and is sent the
        broker's.

        Work that takes longer is a ``LoginStep`` of a login's thread: the exchange yields the step, is resumed with
        ``b""`` when the step is done, and calls its ``result``.

        The exchange returns when it accepts the broker. It raises ``LoginError``, or ``SaslAuthenticationError`` with a
        text that can follow "the broker failed to authenticate:". It reads its credentials only when it is called.
        """

    def close(self) -> None:
        """Called after the client has closed its connections; may be called twice."""


def sasl_mechanism(config: ProducerConfig) -> SaslMechanism:
    """The mechanism that ``sasl.mechanism`` names: a built-in one or an entry point. Raises ``ConfigError``."""
    name = config.sasl_mechanism
    make: Callable[[ProducerConfig], SaslMechanism] | None = built_in(name)
    if make is None:
        from importlib.metadata import entry_points

        found = entry_points(group=GROUP, name=name)
        if not found:
            raise ConfigError([f"sasl.mechanism={name} has no entry point of the group {GROUP} here"])
        make = next(iter(found)).load()
    return make(config)


def login_module(config: ProducerConfig) -> LoginModule:
    """The login module of ``sasl.jaas.config``, with values for its placeholders.

    Raises ``SaslAuthenticationError``, whose text shows no value; ``LoginError`` if a placeholder has no value here.
    """
    try:
        text = config.with_credentials("sasl_jaas_config").sasl_jaas_config
    except ConfigError as error:
        raise LoginError(str(error).rstrip(".")) from None
    if text is None:
        raise SaslAuthenticationError("sasl.jaas.config is not set")
    try:
        return parse_jaas(text.value)
    except JaasError as error:
        raise SaslAuthenticationError(f"sasl.jaas.config {error}{WITH_VALUES}") from None


def username(config: ProducerConfig) -> str | None:
    """The user or principal in ``sasl.jaas.config``, for messages, with its placeholders. None if there is none."""
    if config.sasl_jaas_config is None:
        return None
    try:
        options = parse_jaas(config.sasl_jaas_config.value).options
        return options.get("username", options.get("principal"))
    except JaasError:  # placeholders stand for parts of it
        return None


def jaas_options(config: ProducerConfig) -> dict[str, str]:
    """The options of the login module; empty without ``sasl.jaas.config``."""
    return {} if config.sasl_jaas_config is None else dict(login_module(config).options)
