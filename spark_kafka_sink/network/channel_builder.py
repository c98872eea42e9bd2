"""``ChannelBuilder``: the TLS layer and the handshake of new connections, by ``security.protocol``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.connection import Handshake
from spark_kafka_sink.network.handshake import negotiate_api_versions

if TYPE_CHECKING:
    from spark_kafka_sink.security.tls import TlsLayer
    from spark_kafka_sink.security.tls_context import TlsContexts


_WITH_TLS = ("SSL", "SASL_SSL")


class ChannelBuilder:
    """One per ``NetworkClient``; its methods are called for each new connection (Java: ``ChannelBuilder``).

    What a protocol does not need is not imported. Raises ``ConfigError`` for stores that cannot be used.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._contexts = _tls_contexts(config) if config.security_protocol in _WITH_TLS else None

    def tls_layer(self, node: Node) -> TlsLayer | None:
        """SNI and the certificate check use the name by which the node is known: in bootstrap.servers or Metadata."""
        if self._contexts is None:
            return None
        from spark_kafka_sink.security.tls import TlsLayer

        return TlsLayer(self._contexts.context(), node.host, node.port)

    def handshake(self, node: Node) -> Handshake:
        """The requests before all others: ApiVersions."""
        return negotiate_api_versions(f"{node.host}:{node.port} (id: {node.id})")


def _tls_contexts(config: ProducerConfig) -> TlsContexts:
    from spark_kafka_sink.security.tls_context import TlsContexts

    return TlsContexts(config)
