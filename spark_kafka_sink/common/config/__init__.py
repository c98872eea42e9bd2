"""Kafka's producer options, and what a mapping of them means."""

from spark_kafka_sink.common.config.producer_config import (
    ConfigWarning,
    ProducerConfig,
    config_warnings_to,
    warn_of_options,
)

__all__ = ["ConfigWarning", "ProducerConfig", "config_warnings_to", "warn_of_options"]
