"""``saslTokenProvider``: the provider of OAUTHBEARER's tokens, a cloud or an entry point. Settings for the clouds' own
Java libraries have the same effect. Each cloud has a file of its own, because each needs a library that few
installations have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import ConfigBuilder, did_you_mean
from spark_kafka_sink.common.config.producer_config import LOGIN_OPTION_NAMES
from spark_kafka_sink.common.config.providers import SHADED, class_fault
from spark_kafka_sink.common.config.security_rules import (
    AWS_MECHANISM,
    AWS_MODULE,
    GROUP,
    HANDLER,
    JAAS,
    OAUTH_MODULE,
    OAUTHBEARER,
    PROVIDER,
    LoginModule,
)
from spark_kafka_sink.errors import ConfigError, LoginError
from spark_kafka_sink.network.login.token_login import Token, TokenSource

_SINK_OPTION: Final = "saslTokenProvider"
_SHADED_BY_DATABRICKS: Final = (SHADED, "shadedmskiam.")
_LOGIN: Final = "spark_kafka_sink.network.login"
_AWS: Final = "aws"


class _Cloud(NamedTuple):
    """A cloud. ``source`` gets its tokens and is written like an entry point.

    ``handler`` is the callback handler of its Java library. ``modules`` are the login modules that ``sasl.jaas.config``
    may have, with ``options``.
    """

    source: str
    handler: str | None = None
    modules: tuple[str, ...] = (OAUTH_MODULE,)
    options: tuple[str, ...] = ()


_CLOUDS: Final[Mapping[str, _Cloud]] = MappingProxyType({
    _AWS: _Cloud(
        f"{_LOGIN}.aws:AwsTokens", "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        (OAUTH_MODULE, AWS_MODULE), ("awsProfileName", "awsRoleArn", "awsRoleSessionName"),
    ),
    "gcp": _Cloud(f"{_LOGIN}.gcp:GcpTokens", "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"),
    "azure": _Cloud(f"{_LOGIN}.azure:AzureTokens"),
})  # fmt: skip


def token_provider(draft: ConfigBuilder, module: LoginModule | None) -> bool:
    """Whether the options name a provider. If so, checks them and makes OAUTHBEARER the mechanism. ``module`` is None
    even if placeholders hide a module.
    """
    values, mechanism = draft.values, draft.values["sasl.mechanism"]
    provider = values[PROVIDER] or _meant(values[HANDLER], mechanism)
    if provider is None:
        return False
    provider = provider.lower() if provider.lower() in _CLOUDS else provider
    if PROVIDER in draft.given and "sasl.mechanism" not in draft.given:
        mechanism = OAUTHBEARER
    if mechanism != OAUTHBEARER and not (mechanism == AWS_MECHANISM and provider == _AWS):
        draft.fault(PROVIDER, f"is {provider!r}, which needs {draft.prefix}sasl.mechanism={OAUTHBEARER}.")
    elif (fault := class_fault(provider)) is not None:
        draft.forbid(PROVIDER, fault)
    elif provider not in _CLOUDS and not entry_points(group=GROUP, name=provider):
        draft.fault(
            PROVIDER,
            f"must be {', '.join(_CLOUDS)}, or the name of an entry point of the group {GROUP}, but is "
            f"{provider!r}{did_you_mean(provider, _CLOUDS) or '.'}",
        )
    elif (other := _cloud_of(values[HANDLER]) or provider) != provider:
        draft.fault(
            HANDLER, f"means tokens of {other}, but {draft.prefix}{PROVIDER} is {provider!r}: leave one of them out."
        )
    elif module is not None:
        _check_module(draft, provider, module)
    if provider in _CLOUDS:
        _warn_of_other_sources(draft, provider)
    values["sasl.mechanism"], values[PROVIDER] = OAUTHBEARER, provider
    return True


def provided_tokens(config: ProducerConfig) -> TokenSource:
    """The provider's tokens. Raises ``ConfigError`` if its package is missing or its entry point makes no source."""
    provider = config.sasl_token_provider
    assert provider is not None
    if (fault := class_fault(provider)) is not None:
        raise ConfigError([f"{_SINK_OPTION} {fault}."])
    if provider not in _CLOUDS:
        found = entry_points(group=GROUP, name=provider)
        if not found:
            raise ConfigError([f"{_SINK_OPTION}={provider} has no entry point of the group {GROUP} here"])
        return _CheckedTokens(provider, _of_entry_point(provider, next(iter(found)), config))
    try:
        source: TokenSource = EntryPoint(provider, _CLOUDS[provider].source, GROUP).load()(config)
    except ImportError as error:
        raise ConfigError([
            f"{_SINK_OPTION}={provider} needs a package that is missing here ({error.name}): "
            f"pip install 'spark-kafka-sink[{provider}]', from where you installed it."
        ]) from error  # fmt: skip
    return source


def _warn_of_other_sources(draft: ConfigBuilder, provider: str) -> None:
    for name in sorted(draft.given & LOGIN_OPTION_NAMES):
        if name.startswith("sasl.oauthbearer."):
            draft.warn(name, f"has no effect, as the tokens are those of {provider}; leave it out.")


def _meant(handler: str | None, mechanism: str) -> str | None:
    """The provider that settings of the clouds' Java libraries stand for."""
    if mechanism == AWS_MECHANISM:
        return _AWS
    return _cloud_of(handler) if mechanism == OAUTHBEARER else None


def _cloud_of(handler: str | None) -> str | None:
    found = [name for name, cloud in _CLOUDS.items() if handler and cloud.handler == _unshade(handler)]
    return found[0] if found else None


def _check_module(draft: ConfigBuilder, provider: str, module: LoginModule) -> None:
    cloud = _CLOUDS.get(provider)
    allowed = (OAUTH_MODULE,) if cloud is None else cloud.modules
    if _unshade(module.name) not in allowed:
        draft.fault(
            JAAS, f"has a login module that has no tokens of {provider}; write {' or '.join(allowed)} required;"
        )
    elif cloud is not None and not set(module.options) <= set(cloud.options):
        only = ", ".join(cloud.options)
        known = f"honours only {only}; leave the others out" if only else "honours none; leave them out"
        draft.fault(JAAS, f"has options of its login module that have no effect: {provider} {known}.")


def _unshade(name: str) -> str:
    for prefix in _SHADED_BY_DATABRICKS:
        name = name.removeprefix(prefix)
    return name


def _of_entry_point(provider: str, entry_point: EntryPoint, config: ProducerConfig) -> TokenSource:
    try:
        source: TokenSource = entry_point.load()(config)
    except ConfigError:
        raise
    except Exception as error:
        text = f"{_SINK_OPTION}={provider}: the entry point {entry_point.value} failed with {type(error).__name__}"
        raise ConfigError([text]) from error
    if not isinstance(getattr(source, "what", None), str) or not callable(getattr(source, "fetch", None)):
        text = f"{_SINK_OPTION}={provider}: the entry point {entry_point.value} makes a {type(source).__name__}, which "
        raise ConfigError([text + "lacks fetch() and what, which a TokenSource has."])
    return source


class _CheckedTokens:
    """Checks what an entry point's source returns, because with anything but a token a login would never end."""

    def __init__(self, provider: str, source: TokenSource) -> None:
        self._provider = provider
        self._source = source
        self.what = source.what

    def fetch(self) -> Token:
        token: object = self._source.fetch()
        if isinstance(token, Token) and isinstance(token.value, str):
            times = (token.expires_at,) if token.issued_at is None else (token.expires_at, token.issued_at)
            if all(_is_time(time) for time in times):
                return token
        shown = "a Token with other types" if isinstance(token, Token) else f"a {type(token).__name__}"
        raise LoginError(
            f"{_SINK_OPTION}={self._provider} gave {shown} instead of a Token whose value is a str and whose times are "
            "numbers (ms since 1970)"
        )


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
