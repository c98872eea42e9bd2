"""A node as it runs: an acceptor for each listener (Kafka: ``SocketServer``)."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.testing.broker.acceptor import Acceptor
from spark_kafka_sink.testing.broker.authentication import AtListener, AuthenticationLog
from spark_kafka_sink.testing.broker.handler_pool import HandlerPool
from spark_kafka_sink.testing.listener import Listener

PLAINTEXT: Final = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners of every node besides the plaintext one, the TLS contexts of some, the log of all logins, and how
    long a SASL session lasts (0: for ever).
    """

    by_name: Mapping[str, Listener]
    tls: Mapping[str, ssl.SSLContext]
    log: AuthenticationLog
    max_reauth_ms: int = 0


class ListeningNode:
    """A node as it runs. It opens on ``port``, 0 for a free one, and its other listeners on any free ports. Loop thread
    only."""

    def __init__(
        self,
        node: int,
        port: int,
        listeners: Listeners,
        pool: HandlerPool,
        numbers: itertools.count[int],
        max_request_bytes: int,
    ) -> None:
        every = {PLAINTEXT: Listener(PLAINTEXT), **listeners.by_name}
        self._acceptors = {
            name: Acceptor(
                AtListener(node, name, listener, listeners.log, listeners.max_reauth_ms),
                port if name == PLAINTEXT else 0,
                pool,
                numbers,
                max_request_bytes,
                listeners.tls.get(name),
            )
            for name, listener in every.items()
        }

    @property
    def ports(self) -> dict[str, int]:
        return {name: acceptor.port for name, acceptor in self._acceptors.items()}

    def open(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.open()

    def close(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.close()

    async def closed(self) -> None:
        for acceptor in self._acceptors.values():
            await acceptor.closed()

    def cut_connections(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.cut_connections()

    def pause(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.pause()

    def resume(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.resume()
