"""SASL mechanisms: what one is, and the one of a configuration."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final, Protocol

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.config.sasl_rules import MECHANISMS_GROUP
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.security.plain import Plain
from spark_kafka_sink.security.scram import ScramSha256, ScramSha512


class SaslMechanism(Protocol):
    """One mechanism for all connections of a client."""

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        """One authentication with the broker at ``host``, without I/O: yields the client's messages and gets the
        broker's.

        It returns when the broker is accepted. Raises ``SaslAuthenticationError`` with a text that can follow
        "the broker failed to authenticate:". Reads its credentials when it is called, not earlier.
        """


class MakeMechanism(Protocol):
    """What an entry point of the group ``spark_kafka_sink.sasl`` loads; its name is the mechanism's."""

    def __call__(self, config: ProducerConfig, /) -> SaslMechanism: ...


_BUILT_IN: Final[Mapping[str, MakeMechanism]] = MappingProxyType(
    {"PLAIN": Plain, "SCRAM-SHA-256": ScramSha256, "SCRAM-SHA-512": ScramSha512}
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
