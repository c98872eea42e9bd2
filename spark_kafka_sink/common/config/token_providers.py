"""``saslTokenProvider``: whose tokens OAUTHBEARER logs in with, and the settings of Java's handlers that mean one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.jaas import SHADED, LoginModule
from spark_kafka_sink.common.config.oauth_rules import OAUTH_MODULE, OAUTHBEARER
from spark_kafka_sink.common.config.operator_limits import class_fault
from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.common.config.table import LOGIN_OPTION_NAMES

OPTION: Final = "sasl.token.provider"
SINK_OPTION: Final = "saslTokenProvider"
GROUP: Final = "spark_kafka_sink.sasl"
AWS, GCP, AZURE = "aws", "gcp", "azure"
PROVIDERS: Final = (AWS, GCP, AZURE)

AWS_MECHANISM: Final = "AWS_MSK_IAM"
_IAM: Final = "software.amazon.msk.auth.iam."
AWS_MODULE: Final = f"{_IAM}IAMLoginModule"
_SHADED_BY_DATABRICKS: Final = (SHADED, "shadedmskiam.")
_HANDLER: Final = "sasl.login.callback.handler.class"
_HANDLERS: Final[Mapping[str, str]] = MappingProxyType({
    f"{_IAM}IAMOAuthBearerLoginCallbackHandler": AWS,
    "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler": GCP,
})  # fmt: skip
_AWS_OPTIONS: Final = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")


def token_provider(draft: Draft, module: LoginModule | None) -> bool:
    """Whether a provider is asked for. Then the mechanism becomes OAUTHBEARER, and its settings are checked.

    ``module``: None also where placeholders hide it.
    """
    values, mechanism = draft.values, draft.values["sasl.mechanism"]
    provider = values[OPTION] or _meant(values[_HANDLER], mechanism)
    if provider is None:
        return False
    provider = provider.lower() if provider.lower() in PROVIDERS else provider
    if OPTION in draft.given and "sasl.mechanism" not in draft.given:
        mechanism = OAUTHBEARER
    if mechanism != OAUTHBEARER and not (mechanism == AWS_MECHANISM and provider == AWS):
        draft.fault(OPTION, f"is {provider!r}, which needs {draft.prefix}sasl.mechanism={OAUTHBEARER}.")
    elif (fault := class_fault(provider)) is not None:
        draft.forbid(OPTION, fault)
    elif provider not in PROVIDERS and not entry_points(group=GROUP, name=provider):
        draft.fault(
            OPTION,
            f"must be {', '.join(PROVIDERS)}, or the name of an entry point of the group {GROUP}, but is "
            f"{provider!r}{did_you_mean(provider, PROVIDERS) or '.'}",
        )
    elif (other := _HANDLERS.get(_unshaded(values[_HANDLER] or ""), provider)) != provider:
        draft.fault(_HANDLER, f"means tokens of {other}, but {draft.prefix}{OPTION} is {provider!r}; leave one out.")
    elif module is not None:
        _check_module(draft, provider, module)
    if provider in PROVIDERS:
        _warn_of_other_sources(draft, provider)
    values["sasl.mechanism"], values[OPTION] = OAUTHBEARER, provider
    return True


def _warn_of_other_sources(draft: Draft, provider: str) -> None:
    for name in sorted(draft.given & LOGIN_OPTION_NAMES):
        if name.startswith("sasl.oauthbearer."):
            draft.warn(name, f"has no effect, as the tokens are those of {provider}; leave it out.")


def _meant(handler: str | None, mechanism: str) -> str | None:
    if mechanism == AWS_MECHANISM:
        return AWS
    return _HANDLERS.get(_unshaded(handler)) if handler is not None and mechanism == OAUTHBEARER else None


def _check_module(draft: Draft, provider: str, module: LoginModule) -> None:
    name, allowed = "sasl.jaas.config", [OAUTH_MODULE]
    if provider == AWS:
        allowed.append(AWS_MODULE)
    if _unshaded(module.name) not in allowed:
        draft.fault(
            name, f"has a login module that has no tokens of {provider}; write {' or '.join(allowed)} required;"
        )
        return
    honoured = _AWS_OPTIONS if provider == AWS else ()
    if provider in PROVIDERS and not set(module.options) <= set(honoured):
        known = (
            f"honours only {', '.join(honoured)}; leave the others out" if honoured else "honours none; leave them out"
        )
        draft.fault(name, f"has options of its login module that have no effect: {provider} {known}.")


def _unshaded(name: str) -> str:
    for prefix in _SHADED_BY_DATABRICKS:
        name = name.removeprefix(prefix)
    return name
