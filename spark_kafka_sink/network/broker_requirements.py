"""What a producer's options need of the brokers, by the versions that a broker speaks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError, UnsupportedVersionError
from spark_kafka_sink.network.api_versions import INIT_PRODUCER_ID, METADATA, VersionRange, produce_versions
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import API_KEYS


def idempotence_error(error: KafkaError) -> str:
    """The text for brokers without InitProducerId, where idempotence was asked for."""
    return f"{error}, which enable.idempotence=true needs: set it to false, or use newer brokers"


def unmet(config: ProducerConfig, versions: ApiVersions) -> Iterator[str]:
    """Why a producer with these options cannot write to a broker with these versions; nothing if it can.

    Idempotence is a reason only if the option was given: by default the producer does without it.
    """
    produce = produce_versions(zstd=config.compression_type == "zstd")
    yield from map(str, missing_apis(versions, (("produce", produce), ("metadata", METADATA))))
    if config.asks_for_idempotence:
        yield from map(idempotence_error, missing_apis(versions, (("init_producer_id", INIT_PRODUCER_ID),)))


def missing_apis(
    versions: ApiVersions, needed: Iterable[tuple[str, VersionRange]]
) -> Iterator[UnsupportedVersionError]:
    """An error for each API, by kio's name, that the broker does not speak in one of the versions."""
    for api, ours in needed:
        try:
            versions.pick(API_KEYS[api], *ours)
        except UnsupportedVersionError as error:
            yield error


def require(config: ProducerConfig, versions: ApiVersions | None) -> None:
    """Raises ``UnsupportedVersionError`` with all that is unmet. None: the versions are not known."""
    if versions is not None and (missing := list(unmet(config, versions))):
        raise UnsupportedVersionError("; ".join(missing))
