"""``SaslMechanism``: what a mechanism is. ``network/login/mechanisms.py`` has those of this package."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, TypeAlias

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.security.login_step import LoginStep

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
