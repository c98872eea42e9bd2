"""``ChannelBuilder``: the TLS layer and the handshake of new connections, by ``security.protocol``."""

from __future__ import annotations

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.model import Node
from spark_kafka_sink.network.connection import Handshake
from spark_kafka_sink.network.handshake import negotiate_api_versions


class ChannelBuilder:
    """One per ``NetworkClient``; its methods are called for each new connection (Java: ``ChannelBuilder``)."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    def handshake(self, node: Node) -> Handshake:
        """The requests before all others: ApiVersions."""
        return negotiate_api_versions(f"{node.host}:{node.port} (id: {node.id})")
