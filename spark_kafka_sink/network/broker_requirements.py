"""What a producer's options need of the brokers, by the versions that a broker speaks."""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, UnsupportedVersionError
from spark_kafka_sink.network.api_versions import INIT_PRODUCER_ID, METADATA, produce_versions
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import API_KEYS


def idempotence_error(error: KafkaError) -> str:
    """The text for brokers without InitProducerId, where idempotence was asked for."""
    return f"{error}, which enable.idempotence=true needs: set it to false, or use newer brokers"


def unmet(config: ProducerConfig, versions: ApiVersions) -> Iterator[str]:
    """Why a producer with these options cannot write to a broker with these versions; nothing if it can.

    A producer does without idempotence unless the option was given, so the default is no reason.
    """
    produce = produce_versions(zstd=config.compression_type == "zstd")
    for api, needed in (("produce", produce), ("metadata", METADATA)):
        try:
            versions.pick(API_KEYS[api], *needed)
        except UnsupportedVersionError as error:
            yield str(error)
    if config.enable_idempotence and "enable.idempotence" in config.asked:
        try:
            versions.pick(API_KEYS["init_producer_id"], *INIT_PRODUCER_ID)
        except UnsupportedVersionError as error:
            yield idempotence_error(error)


def require(config: ProducerConfig, versions: ApiVersions | None) -> None:
    """Raises ``UnsupportedVersionError`` with all that is unmet. None: the versions are not known."""
    if versions is not None and (missing := list(unmet(config, versions))):
        raise UnsupportedVersionError("; ".join(missing))
