"""What the network asks of a producer's configuration."""

from __future__ import annotations

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.network.client import NetworkConfig
from spark_kafka_sink.network.metadata import MetadataConfig
from spark_kafka_sink.network.name_lookup import Server, canonical_servers


def bootstrap_servers(config: ProducerConfig) -> tuple[Server, ...]:
    """``bootstrap.servers`` as ``client.dns.lookup`` wants them; ``ConfigError`` when none can be resolved."""
    if config.client_dns_lookup == "use_all_dns_ips":
        return config.bootstrap_servers
    return canonical_servers(config.bootstrap_servers)


def network_config(config: ProducerConfig) -> NetworkConfig:
    return NetworkConfig(
        client_id=config.client_id,
        request_timeout_ms=config.request_timeout_ms,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_in_flight=config.max_in_flight_requests_per_connection,
        socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
    )


def metadata_config(config: ProducerConfig) -> MetadataConfig:
    return MetadataConfig(
        max_age_ms=config.metadata_max_age_ms,
        max_idle_ms=config.metadata_max_idle_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        retry_backoff_max_ms=config.retry_backoff_max_ms,
        rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
    )
