"""``ChannelBuilder``: the TLS layer and the handshake of new connections, by ``security.protocol``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.network.connection import ApiVersions, Handshake
from spark_kafka_sink.network.handshake import authenticate, authenticate_again, negotiate_api_versions

if TYPE_CHECKING:
    from spark_kafka_sink.network.security.sasl import SaslMechanism
    from spark_kafka_sink.network.security.tls import TlsLayer
    from spark_kafka_sink.network.security.tls_context import TlsContexts


_WITH_TLS = ("SSL", "SASL_SSL")


class ChannelBuilder:
    """One per ``NetworkClient``; its methods are called for each new connection (Java: ``ChannelBuilder``).

    What a protocol does not need is not imported. Raises ``ConfigError`` for stores that cannot be used.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._contexts = _tls_contexts(config) if config.security_protocol in _WITH_TLS else None
        self._mechanism = _mechanism(config) if config.security_protocol.startswith("SASL_") else None

    def tls_layer(self, node: Node) -> TlsLayer | None:
        """SNI and the certificate check use the name by which the node is known: in bootstrap.servers or Metadata."""
        if self._contexts is None:
            return None
        from spark_kafka_sink.network.security.tls import TlsLayer

        return TlsLayer(self._contexts.context(), node.host, node.port)

    def handshake(self, node: Node) -> Handshake:
        """The requests before all others: ApiVersions, then SASL."""
        peer = f"{node.host}:{node.port} (id: {node.id})"
        if self._mechanism is None:
            return negotiate_api_versions(peer)
        return authenticate(peer, node.host, self._config, self._mechanism)

    def reauthentication(self, node: Node, versions: ApiVersions) -> Handshake:
        """SASL again; ``versions``: of the connection, whose session has an end."""
        assert self._mechanism is not None
        return authenticate_again(versions, node.host, self._config, self._mechanism)

    def close(self) -> None:
        """No connection follows."""
        if self._mechanism is not None:
            self._mechanism.close()


def _tls_contexts(config: ProducerConfig) -> TlsContexts:
    from spark_kafka_sink.network.security.tls_context import TlsContexts

    return TlsContexts(config)


def _mechanism(config: ProducerConfig) -> SaslMechanism:
    from spark_kafka_sink.network.login.mechanisms import sasl_mechanism

    return sasl_mechanism(config)
