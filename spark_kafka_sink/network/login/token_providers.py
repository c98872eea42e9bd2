"""The source of tokens that ``saslTokenProvider`` names: a cloud's, or one of an entry point."""

from __future__ import annotations

import math
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.operator_limits import class_fault
from spark_kafka_sink.common.config.token_providers import AWS, AZURE, GCP, GROUP, PROVIDERS, SINK_OPTION
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.network.login.token_login import Token, TokenSource


class MakeTokenSource(Protocol):
    """What an entry point of the group ``spark_kafka_sink.sasl`` loads whose name is a ``saslTokenProvider``."""

    def __call__(self, config: ProducerConfig, /) -> TokenSource: ...


def provided_tokens(config: ProducerConfig, clock: Clock) -> TokenSource:
    """Raises ``ConfigError`` where the provider's package is not installed, or its entry point makes no source."""
    provider = config.sasl_token_provider
    assert provider is not None
    if (fault := class_fault(provider)) is not None:
        raise ConfigError([f"{SINK_OPTION} {fault}."])
    if provider not in PROVIDERS:
        found = entry_points(group=GROUP, name=provider)
        if not found:
            raise ConfigError([f"{SINK_OPTION}={provider} has no entry point of the group {GROUP} here"])
        return _EntryPointTokens(provider, _of_entry_point(provider, next(iter(found)), config))
    try:
        return _of_cloud(provider, config, clock)
    except ImportError as error:
        raise ConfigError([
            f"{SINK_OPTION}={provider} needs a package that is missing here ({error.name}): "
            f"pip install 'spark-kafka-sink[{provider}]'."
        ]) from error  # fmt: skip


def _of_cloud(provider: str, config: ProducerConfig, clock: Clock) -> TokenSource:
    if provider == AWS:
        from spark_kafka_sink.network.login.aws import AwsTokens

        return AwsTokens(config)
    if provider == GCP:
        from spark_kafka_sink.network.login.gcp import GcpTokens

        return GcpTokens(config, clock)
    assert provider == AZURE
    from spark_kafka_sink.network.login.azure import AzureTokens

    return AzureTokens(config)


def _of_entry_point(provider: str, entry_point: EntryPoint, config: ProducerConfig) -> TokenSource:
    try:
        make: MakeTokenSource = entry_point.load()
        source = make(config)
    except ConfigError:
        raise
    except Exception as error:
        text = f"{SINK_OPTION}={provider}: the entry point {entry_point.value} failed with {type(error).__name__}"
        raise ConfigError([text]) from error
    if not isinstance(getattr(source, "what", None), str) or not callable(getattr(source, "fetch", None)):
        text = f"{SINK_OPTION}={provider}: the entry point {entry_point.value} makes a {type(source).__name__}, which "
        raise ConfigError([text + "has no fetch() and what of a TokenSource."])
    return source


class _EntryPointTokens:
    """Checks what an entry point's source returns: a login that ends with anything else would never end."""

    def __init__(self, provider: str, source: TokenSource) -> None:
        self._provider = provider
        self._source = source
        self.what = source.what

    def fetch(self) -> Token:
        token: object = self._source.fetch()
        if isinstance(token, Token) and isinstance(token.value, str):
            times = (token.expires_at,) if token.issued_at is None else (token.expires_at, token.issued_at)
            if all(_is_time(each) for each in times):
                return token
        shown = "a Token with other types" if isinstance(token, Token) else f"a {type(token).__name__}"
        raise LoginError(
            f"{SINK_OPTION}={self._provider} gave {shown} instead of a Token whose value is a str and whose times are "
            "numbers (ms since 1970)"
        )


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
