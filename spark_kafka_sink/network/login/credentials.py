"""Credentials in ``sasl.jaas.config``. They may change, so each authentication reads them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import (
    JaasError,
    LoginModule,
    check_login_module,
    credentials_fault,
    parse_jaas,
)
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError

_WITH_VALUES: Final = (
    " (with the values of its placeholders: a quote, a backslash or a line end in a value must be escaped)"
)
"""Ends errors about a text that the rules have accepted, because they saw it with placeholders."""


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


def login_module(config: ProducerConfig) -> LoginModule:
    """The login module of ``sasl.jaas.config``, with values for its placeholders.

    Raises ``SaslAuthenticationError``, whose text shows no value; ``LoginError`` if a placeholder has no value here.
    """
    try:
        text = config.with_credentials("sasl_jaas_config").sasl_jaas_config
    except ConfigError as error:
        raise LoginError(str(error).rstrip(".")) from None
    if text is None:
        raise SaslAuthenticationError("sasl.jaas.config is not set")
    try:
        return parse_jaas(text.value)
    except JaasError as error:
        raise SaslAuthenticationError(f"sasl.jaas.config {error}{_WITH_VALUES}") from None


def username(config: ProducerConfig) -> str | None:
    """The user or principal in ``sasl.jaas.config``, for messages, with its placeholders. None if there is none."""
    if config.sasl_jaas_config is None:
        return None
    try:
        options = parse_jaas(config.sasl_jaas_config.value).options
        return options.get("username", options.get("principal"))
    except JaasError:  # placeholders stand for parts of it
        return None


def jaas_options(config: ProducerConfig) -> dict[str, str]:
    """The options of the login module; empty without ``sasl.jaas.config``."""
    return {} if config.sasl_jaas_config is None else dict(login_module(config).options)


def user_credentials(config: ProducerConfig) -> Credentials:
    """User and password of the login module. Raises ``SaslAuthenticationError``."""
    module = login_module(config)
    if (fault := credentials_fault(config.sasl_mechanism, module)) is not None:
        raise SaslAuthenticationError(f"sasl.jaas.config {fault}{_WITH_VALUES}")
    is_token = module.options.get("tokenauth", "").lower() == "true"
    return Credentials(module.options["username"], module.options["password"], is_token)
