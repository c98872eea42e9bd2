"""``ChannelBuilder``: the TLS layer and the handshake of new connections, by ``security.protocol``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.connection import Handshake
from spark_kafka_sink.network.handshake import negotiate_api_versions

if TYPE_CHECKING:
    from ssl import SSLContext

    from spark_kafka_sink.security.tls import TlsLayer


class Contexts(Protocol):
    """Makes the context of each new TLS connection."""

    def context(self) -> SSLContext:
        """With the certificates as they are now. Raises ``KafkaError``."""


class ChannelBuilder:
    """One per ``NetworkClient``; its methods are called for each new connection (Java: ``ChannelBuilder``).

    ``contexts``: None without TLS, which then is not imported.
    """

    def __init__(self, config: ProducerConfig, contexts: Contexts | None = None) -> None:
        self._config = config
        self._contexts = contexts

    def tls_layer(self, node: Node) -> TlsLayer | None:
        """SNI and the certificate check use the name by which the node is known: in bootstrap.servers or Metadata."""
        if self._contexts is None:
            return None
        from spark_kafka_sink.security.tls import TlsLayer

        return TlsLayer(self._contexts.context(), node.host, node.port)

    def handshake(self, node: Node) -> Handshake:
        """The requests before all others: ApiVersions."""
        return negotiate_api_versions(f"{node.host}:{node.port} (id: {node.id})")
