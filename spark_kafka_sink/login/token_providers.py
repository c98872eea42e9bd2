"""The source of tokens that ``saslTokenProvider`` names: a cloud's, or one of an entry point."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Protocol, cast

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.config.token_providers import AWS, AZURE, GCP, GROUP, PROVIDERS, SINK_OPTION
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.login.token_login import TokenSource


class MakeTokenSource(Protocol):
    """What an entry point of the group ``spark_kafka_sink.sasl`` loads whose name is a ``saslTokenProvider``."""

    def __call__(self, config: ProducerConfig, /) -> TokenSource: ...


def provided_tokens(config: ProducerConfig, clock: Clock) -> TokenSource:
    """Raises ``ConfigError`` where the provider's package is not installed."""
    provider = config.sasl_token_provider
    assert provider is not None
    if provider not in PROVIDERS:
        found = entry_points(group=GROUP, name=provider)
        if not found:
            raise ConfigError([f"{SINK_OPTION}={provider} has no entry point of the group {GROUP} here"])
        return cast(MakeTokenSource, next(iter(found)).load())(config)
    try:
        return _of_cloud(provider, config, clock)
    except ImportError as error:
        raise ConfigError([
            f"{SINK_OPTION}={provider} needs a package that is missing here ({error.name}): "
            f"pip install 'spark-kafka-sink[{provider}]'."
        ]) from error  # fmt: skip


def _of_cloud(provider: str, config: ProducerConfig, clock: Clock) -> TokenSource:
    if provider == AWS:
        from spark_kafka_sink.login.aws import AwsTokens

        return AwsTokens(config)
    if provider == GCP:
        from spark_kafka_sink.login.gcp import GcpTokens

        return GcpTokens(config, clock)
    assert provider == AZURE
    from spark_kafka_sink.login.azure import AzureTokens

    return AzureTokens(config)
