"""What a SASL mechanism is to a connection: ``SaslMechanism``, and the ``LoginStep`` that its exchange may wait for."""

from __future__ import annotations

from collections.abc import Generator
from importlib.metadata import entry_points
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.sasl_rules import GROUP, built_in
from spark_kafka_sink.errors import ConfigError, LoginError

T = TypeVar("T")


class Wakeable(Protocol):
    """Something that sleeps: ``Transport``."""

    def wakeup(self) -> None:
        """Wake the thread that waits. Any thread may call it."""


class LoginStep(Generic[T]):
    """A token to fetch, or a step of Kerberos. A handshake yields it and goes on when a login's thread has ended it.

    ``what``: follows "waiting for" in errors; names the option to look at.
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
        # Waiting thread: add the sleeper, then read `done`. Login's thread: set `done`, then wake. One sees the other.
        self._sleepers.append(sleeper)
        if self.done:
            sleeper.wakeup()

    def _end(self) -> None:
        self.done = True
        for sleeper in tuple(self._sleepers):
            sleeper.wakeup()


Exchange: TypeAlias = Generator[bytes | LoginStep[Any], bytes, None]


class SaslMechanism(Protocol):
    """One mechanism for all connections of a client. Called by the thread that owns the client's connections."""

    def exchange(self, host: str) -> Exchange:
        """One authentication with the broker at ``host``, without I/O: yields the client's messages and gets the
        broker's.

        What takes longer is a ``LoginStep`` of a login's thread: the exchange yields the step, is resumed with ``b""``
        when the step is done, and calls its ``result``.

        It returns when the broker is accepted. Raises ``SaslAuthenticationError`` with a text that can follow
        "the broker failed to authenticate:"; or ``LoginError``. Reads its credentials when it is called, not earlier.
        """

    def close(self) -> None:
        """The client has closed its connections. Closing twice is harmless."""


class MakeMechanism(Protocol):
    """What an entry point of the group ``spark_kafka_sink.sasl`` loads; its name is the mechanism's."""

    def __call__(self, config: ProducerConfig, /) -> SaslMechanism: ...


def sasl_mechanism(config: ProducerConfig) -> SaslMechanism:
    """The mechanism of ``sasl.mechanism``: built in, or an entry point. Raises ``ConfigError``."""
    name = config.sasl_mechanism
    make: MakeMechanism | None = built_in(name)
    if make is None:
        found = entry_points(group=GROUP, name=name)
        if not found:
            raise ConfigError([f"sasl.mechanism={name} has no entry point of the group {GROUP} here"])
        make = next(iter(found)).load()
    return make(config)
