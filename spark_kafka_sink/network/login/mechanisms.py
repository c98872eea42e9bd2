"""The SASL mechanism of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.sasl_rules import MECHANISMS_GROUP
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.login.plain import Plain
from spark_kafka_sink.network.login.sasl import MakeMechanism, SaslMechanism
from spark_kafka_sink.network.login.scram import ScramSha256, ScramSha512


def _oauthbearer(config: ProducerConfig, /) -> SaslMechanism:
    from spark_kafka_sink.network.login.oauthbearer import OAuthBearer

    if config.sasl_token_provider is not None:
        from spark_kafka_sink.network.login.token_providers import provided_tokens

        return OAuthBearer(config, provided_tokens(config, SystemClock()))
    from spark_kafka_sink.network.login.token_sources import token_source

    return OAuthBearer(config, token_source(config, SystemClock()))


def _gssapi(config: ProducerConfig, /) -> SaslMechanism:
    from spark_kafka_sink.network.login.kerberos import Kerberos

    try:
        from spark_kafka_sink.network.login.gss import GssTickets
    except ImportError as error:
        raise ConfigError([
            f"sasl.mechanism=GSSAPI needs the package gssapi and MIT Kerberos, which cannot be loaded here ({error}): "
            "pip install 'spark-kafka-sink[gssapi]', which needs a C compiler and libkrb5-dev (Debian, Ubuntu) or "
            "krb5-devel (Red Hat)."
        ]) from error  # fmt: skip
    return Kerberos(config, GssTickets(config, SystemClock()))


_BUILT_IN: Final[Mapping[str, MakeMechanism]] = MappingProxyType(
    {
        "PLAIN": Plain,
        "SCRAM-SHA-256": ScramSha256,
        "SCRAM-SHA-512": ScramSha512,
        "OAUTHBEARER": _oauthbearer,
        "GSSAPI": _gssapi,
    }
)


def sasl_mechanism(config: ProducerConfig) -> SaslMechanism:
    """The mechanism of ``sasl.mechanism``. Raises ``ConfigError``."""
    name = config.sasl_mechanism
    make = _BUILT_IN.get(name)
    if make is None:
        found = entry_points(group=MECHANISMS_GROUP, name=name)
        if not found:
            raise ConfigError([f"sasl.mechanism={name} has no entry point of the group {MECHANISMS_GROUP} here"])
        make = next(iter(found)).load()
    return make(config)
