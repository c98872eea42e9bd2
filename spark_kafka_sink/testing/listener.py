"""The common parameters of ``LocalKafka`` and ``TestBroker``: racks, and listeners with the options of their
clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.common.config.security_rules import PROTOCOLS
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.testing.certificates import HOST_NAMES, CertificateAuthority

CLIENT_AUTH: Final = ("none", "requested", "required")
LOGIN_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    }
)
MECHANISMS: Final = tuple(LOGIN_MODULES)


def _users() -> dict[str, str]:
    return {"client": "client-secret"}


@dataclass(frozen=True)
class Listener:
    """A listener's ``protocol`` (``SSL``, ``SASL_PLAINTEXT``, ``SASL_SSL``, ``PLAINTEXT``) and who may connect.

    With SASL, ``users`` (name to password) log in with any of ``mechanisms``; a broker's SCRAM users log in at all its
    listeners. ``client_auth="required"`` asks clients for a certificate, too (mutual TLS; Kafka's ``ssl.client.auth``);
    its common name is then the user. ``host_names``, ``not_before``, ``not_after``: fields of the broker's certificate,
    to test clients that must refuse it.
    """

    protocol: str
    client_auth: str = "none"
    users: Mapping[str, str] = field(default_factory=_users, repr=False)
    mechanisms: tuple[str, ...] = MECHANISMS
    host_names: tuple[str, ...] = HOST_NAMES
    not_before: datetime | None = None
    not_after: datetime | None = None

    def __post_init__(self) -> None:
        faults = []
        if self.protocol not in PROTOCOLS:
            faults.append(f"protocol={self.protocol!r} is none of {', '.join(PROTOCOLS)}")
        if self.client_auth not in CLIENT_AUTH:
            faults.append(f"client_auth={self.client_auth!r} is none of {', '.join(CLIENT_AUTH)}")
        unknown = [mechanism for mechanism in self.mechanisms if mechanism not in MECHANISMS]
        if unknown or not self.mechanisms:
            faults.append(f"mechanisms={self.mechanisms!r}: name some of {', '.join(MECHANISMS)}")
        if self.has_sasl and not self.users:
            faults.append(f"{self.protocol} needs users")
        if faults:
            raise ConfigError(faults)

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def key_store(self, authority: CertificateAuthority) -> str:
        """The broker's key and certificate, PEM."""
        return authority.issue("broker", self.host_names, self.not_before, self.not_after).key_store


def rack_of_each(nodes: int | Sequence[str]) -> tuple[str | None, ...]:
    """The rack (``broker.rack``) of each node. ``nodes``: the racks, or the number of nodes, which then have none."""
    return (None,) * nodes if isinstance(nodes, int) else tuple(nodes)


class ListenerOptions(ABC):
    """A cluster with further listeners, and the options of their clients. A string is a protocol with the defaults of
    ``Listener``.
    """

    def __init__(self, listeners: Mapping[str, str | Listener]) -> None:
        self._listeners = {name: Listener(each) if isinstance(each, str) else each for name, each in listeners.items()}
        # The CA of all certificates; without TLS there is none, and no need for ``trustme``.
        has_tls = any(listener.has_tls for listener in self._listeners.values())
        self._authority = CertificateAuthority() if has_tls else None

    @abstractmethod
    def servers(self, listener: str) -> str:
        """``bootstrap_servers`` of one listener."""

    def client_options(self, listener: str, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """Options of a client of one listener, by Kafka's names.

        ``user``: a user of the listener, by default the first one; without SASL, the name in the client's certificate.
        ``mechanism``: by default the listener's last one. Certificates are inline, so no files are needed.
        """
        options = _client_options(self._listeners[listener], self._authority, user, mechanism)
        return {"bootstrap.servers": self.servers(listener), **options}

    def spark_options(self, listener: str, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """``client_options`` with ``kafka.`` before each name."""
        return with_prefix(self.client_options(listener, user, mechanism))


def _client_options(
    listener: Listener, authority: CertificateAuthority | None, user: str | None, mechanism: str | None
) -> dict[str, str]:
    if user is None:
        user = next(iter(listener.users), "client")
    options = {"security.protocol": listener.protocol}
    if listener.has_tls and authority is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.certificate}
        if listener.client_auth != "none":
            own = authority.issue(user, host_names=(user,))
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": own.chain,
                "ssl.keystore.key": own.key,
            }
    if listener.has_sasl:
        if user not in listener.users:
            raise ConfigError([f"user {user!r} is none of {', '.join(listener.users)}"])
        mechanism = mechanism or listener.mechanisms[-1]
        options |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login(mechanism, user, listener.users[user])}
    return options


def login(mechanism: str, user: str, password: str) -> str:
    """``sasl.jaas.config`` of a client."""
    return f"{LOGIN_MODULES[mechanism]} required username={quoted(user)} password={quoted(password)};"


def with_prefix(options: Mapping[str, str]) -> dict[str, str]:
    """The options for Spark's Kafka sink, with ``kafka.`` before each name."""
    return {f"kafka.{name}": value for name, value in options.items()}


def quoted(text: str) -> str:
    """A value in a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
