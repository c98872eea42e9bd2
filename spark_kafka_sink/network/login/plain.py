"""SASL/PLAIN (RFC 4616), and what SCRAM has in common with it: a login module with user and password.

PLAIN sends both in clear text, so only SASL_SSL hides them on the way.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import ClassVar, Final, NamedTuple

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import check_login_module, credentials_fault
from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network.login.sasl import WITH_VALUES, login_module

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Credentials(NamedTuple):
    """User and password of ``PlainLoginModule`` and ``ScramLoginModule``.

    With ``is_token`` they are the id and the HMAC of a delegation token (``tokenauth=true``).
    """

    username: str
    password: str
    is_token: bool = False

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r}, password=[hidden])"


class PasswordMechanism:
    """What PLAIN and SCRAM have in common: a login module with ``username`` and ``password``, and nothing to close."""

    login_modules: ClassVar[tuple[str, ...]]
    example: ClassVar[str]
    sends: ClassVar[str]
    advice = "username and password in sasl.jaas.config"
    check = staticmethod(check_login_module)

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    @classmethod
    def module_fault(cls, options: Mapping[str, str]) -> str | None:
        missing = [key for key in ("username", "password") if key not in options]
        if missing:
            return f"has no {' and no '.join(missing)}; write {cls.example}"
        if any("\0" in options[key] for key in ("username", "password")):
            return "has a NUL character (\\0) in its username or password: is a backslash not doubled?"
        return None

    def close(self) -> None:
        """Nothing is open."""


class Plain(PasswordMechanism):
    """One message, UTF-8; the broker's response is empty or an error."""

    login_modules = (PLAIN_MODULE, SCRAM_MODULE)  # as in Java
    example = f'{PLAIN_MODULE} required username="…" password="…";'
    sends = "password"

    def exchange(self, host: str) -> Generator[bytes, bytes, None]:
        username, password, _is_token = user_credentials(self._config)
        yield f"\0{username}\0{password}".encode()


def user_credentials(config: ProducerConfig) -> Credentials:
    """User and password of the login module. Raises ``SaslAuthenticationError``."""
    module = login_module(config)
    if (fault := credentials_fault(config.sasl_mechanism, module)) is not None:
        raise SaslAuthenticationError(f"sasl.jaas.config {fault}{WITH_VALUES}")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return Credentials(module.options["username"], module.options["password"], is_token)
