"""Advice for failed connection attempts, for the sink's errors and ``spark-kafka-sink check``. Also the APIs that a
producer's options need, compared with a broker's versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.shell import option, server_options
from spark_kafka_sink.errors import ConnectionStep, FailedStep, KafkaError, UnsupportedVersionError
from spark_kafka_sink.network.api_versions import INIT_PRODUCER_ID, METADATA, VersionRange, produce_versions
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.messages import API_KEYS


def failed_step(error: BaseException | None) -> FailedStep | None:
    """The failed connection attempt behind an error: the error's own, or one of its causes'."""
    while error is not None:
        if isinstance(error, KafkaError) and error.failed_step is not None:
            return error.failed_step
        error = error.__cause__
    return None


def advice(error: BaseException) -> str:
    """The option to look at; empty if the error's text names it, as texts about TLS, ApiVersions and SASL do."""
    failed = failed_step(error)
    if failed is None or failed.step not in (ConnectionStep.DNS, ConnectionStep.TCP):
        return ""
    name = "bootstrap.servers" if failed.bootstrap else "the broker's advertised.listeners"
    if failed.step is ConnectionStep.DNS:
        return f"see {name}: can this machine resolve the host name?"
    return f"see {name}: is the broker running, are host and port right, is there a firewall in between?"


def diagnosis(error: BaseException, command: str) -> str:
    """The failed step, what to look at and ``command``, which tries each step. Empty if no connection failed."""
    failed = failed_step(error)
    if failed is None:
        return ""
    more = f"; {look_at}" if (look_at := advice(error)) else "."
    return (
        f"The connection to {failed.server} failed at step {failed.step.value}{more} "
        f"To try each step from this machine: {command}"
    )


def check_command(config: ProducerConfig, topic: str | None = None) -> str:
    """The command that checks the connection of a write."""
    command = f"spark-kafka-sink check {server_options(config)}"
    if topic is not None:
        command += f" {option('--topic', topic)}"
    return command if config.security_protocol == "PLAINTEXT" else f"{command} (a file with the kafka.* options)"


def idempotence_error(error: KafkaError) -> str:
    """The text for brokers without InitProducerId if the option enable.idempotence was given."""
    return f"{error}, which enable.idempotence=true needs: set it to false, or use newer brokers"


def unmet(config: ProducerConfig, versions: ApiVersions) -> Iterator[str]:
    """Why a producer with these options cannot write to a broker with these versions; nothing if it can.

    Idempotence is a reason only if the option was given: by default the producer does without it.
    """
    produce = produce_versions(codec=config.compression_type)
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
    """Raises ``UnsupportedVersionError`` with everything that is unmet. ``versions`` None: not known."""
    if versions is not None and (missing := list(unmet(config, versions))):
        raise UnsupportedVersionError("; ".join(missing))
