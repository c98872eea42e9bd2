"""SASL/OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a token and extensions. The rules show no credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import ConfigBuilder
from spark_kafka_sink.common.config.providers import SHADED, file_fault, path_of_url, url_fault
from spark_kafka_sink.common.config.security_rules import (
    ASSERTION_FILES,
    CLIENT_CREDENTIALS_RETRIEVER,
    DEFAULT_RETRIEVER,
    FILE_RETRIEVER,
    HANDLER,
    JAAS,
    JWT_BEARER_RETRIEVER,
    LOGIN_HANDLERS,
    OAUTH_MODULE,
    TOKEN_URL,
    LoginModule,
    check_login_module,
)
from spark_kafka_sink.errors import LoginError, SaslAuthenticationError, sanitize
from spark_kafka_sink.network.login.sasl import Exchange, jaas_options
from spark_kafka_sink.network.login.token_login import Login, RefreshWindow, TokenSource
from spark_kafka_sink.network.login.token_providers import provided_tokens, token_provider

_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_FILE: Final = "sasl.oauthbearer.assertion.file"
_KEY: Final = "sasl.oauthbearer.assertion.private.key.file"
_EXTENSION: Final = "extension_"
# Java: OAuthBearerClientInitialResponse.
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750: b64token
_SEPARATOR: Final = "\x01"
_MAX_SHOWN: Final = 500


class OAuthBearer:
    """Logs in with a token that all clients of the process with the same credentials share. ``source`` gets the tokens;
    by default, the source that the options name.
    """

    login_modules = (OAUTH_MODULE,)
    example = f'{OAUTH_MODULE} required clientId="…" clientSecret="…";'
    sends = "token"
    advice = "sasl.oauthbearer.token.endpoint.url and scope, and the issuer and audience that the brokers expect"

    def __init__(self, config: ProducerConfig, source: TokenSource | None = None) -> None:
        self._config = config
        source = _source(config) if source is None else source
        self._login = Login.shared(self, config, source, RefreshWindow.of_tokens(config))

    @staticmethod
    def check(draft: ConfigBuilder, module: LoginModule | None) -> None:
        if token_provider(draft, module):
            return
        if module is not None:  # not required, because credentials also have options of their own
            check_login_module(draft, module)
        if JAAS not in draft.faulty:
            _check_source(draft, module)

    @staticmethod
    def module_fault(options: Mapping[str, str]) -> str | None:
        return None

    def exchange(self, host: str) -> Exchange:
        step = self._login.token()
        yield step
        token = step.result().value
        if not _TOKEN.fullmatch(token):  # a separator would add fields to the message
            raise LoginError(f"{step.what} has characters that no token may have (RFC 6750)")
        challenge = yield initial_response(token, extensions(self._config))
        if challenge:
            # The broker names its reason, expects this byte and then refuses the login.
            yield _SEPARATOR.encode()
            reason = sanitize(challenge.decode(errors="replace"), _MAX_SHOWN)
            raise SaslAuthenticationError(f"it was given a token that the broker refused: {reason}")

    def close(self) -> None:
        self._login.close(self)


def initial_response(token: str, extensions: Mapping[str, str]) -> bytes:
    """The client's first message."""
    pairs = {"auth": f"Bearer {token}", **extensions}
    joined = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs.items())
    return f"n,,{_SEPARATOR}{joined}{_SEPARATOR}".encode()


def extensions(config: ProducerConfig) -> dict[str, str]:
    """The options ``extension_<name>`` of the login module, with values for their placeholders.

    Raises ``SaslAuthenticationError`` for values that would break the message: a separator would add fields to it.
    """
    options = jaas_options(config)
    if faults := _extension_faults(options):
        raise SaslAuthenticationError(f"sasl.jaas.config {faults[0].rstrip('.')}")
    return {name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)}


def _extension_faults(options: Mapping[str, str]) -> list[str]:
    """The faults of a login module's extensions, in words that follow ``sasl.jaas.config``. Shows no value.

    The login checks them again, because placeholders may stand for them.
    """
    faults = []
    for option, value in options.items():
        name = option.removeprefix(_EXTENSION)
        if name == option:
            continue
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            faults.append(f"has extension_{name}, but the name of an extension has only letters and is not auth.")
        elif not _EXTENSION_VALUE.fullmatch(value):
            fault = f"has extension_{name}, whose value is empty or has control characters or others outside ASCII."
            faults.append(fault)
    return faults


def _source(config: ProducerConfig) -> TokenSource:
    if config.sasl_token_provider is not None:
        return provided_tokens(config)
    from spark_kafka_sink.network.login.token_sources import token_source  # it imports cryptography

    return token_source(config, SystemClock())


def _check_source(draft: ConfigBuilder, module: LoginModule | None) -> None:
    """Checks the source of tokens and its credentials. ``module`` is None even if placeholders hide a module."""
    options = dict(module.options) if module is not None else {}
    _check_login_handler(draft)
    for fault in _extension_faults(options):
        draft.fault(JAAS, fault)
    url = draft.values[TOKEN_URL] = draft.values[TOKEN_URL] or None
    if url is None:
        draft.fault(TOKEN_URL, "is required with OAUTHBEARER: the identity provider's URL for tokens, or file:/path.")
        return
    scheme = _scheme(url)
    if scheme not in ("http", "https", "file") or (scheme != "file" and f"{scheme}://" not in url.lower()):
        draft.fault(TOKEN_URL, "must begin with https://, http:// or file:/.")
        return
    _check_limits(draft, url)
    draft.caution_clear_text(TOKEN_URL, url)
    retriever = draft.values[_RETRIEVER]
    if retriever == DEFAULT_RETRIEVER:
        retriever = draft.values[_RETRIEVER] = FILE_RETRIEVER if scheme == "file" else CLIENT_CREDENTIALS_RETRIEVER
    if (retriever == FILE_RETRIEVER) != (scheme == "file"):
        name = retriever.rpartition(".")[2]
        needed = "a file: URL" if scheme != "file" else "an http or https URL"
        draft.fault(_RETRIEVER, f"is {name}, which needs {needed} in {draft.prefix}{TOKEN_URL}.")
    elif retriever == CLIENT_CREDENTIALS_RETRIEVER and (module is not None or draft.values[JAAS] is None):
        _check_client_credentials(draft, options)
    elif retriever == JWT_BEARER_RETRIEVER and not (draft.values[_FILE] or draft.values[_KEY]):
        draft.fault(_RETRIEVER, f"is JwtBearerJwtRetriever, which needs {draft.prefix}{_KEY} or {draft.prefix}{_FILE}.")


def _check_limits(draft: ConfigBuilder, url: str) -> None:
    """Checks the operator's limits of the URL and of files."""
    limits = {name: file_fault(draft.values[name]) for name in ASSERTION_FILES if draft.values[name]}
    limits[TOKEN_URL] = file_fault(path_of_url(url)) if _scheme(url) == "file" else url_fault(url)
    for name, limit in limits.items():
        if limit is not None:
            draft.forbid(name, limit)


def _check_login_handler(draft: ConfigBuilder) -> None:
    given = draft.values[HANDLER]
    if given is None:
        draft.fault(HANDLER, f"is required with OAUTHBEARER: {LOGIN_HANDLERS[0]}.")
    elif given.removeprefix(SHADED) not in LOGIN_HANDLERS:
        draft.fault(
            HANDLER,
            f"is {given!r}, a class that only a JVM can run; write {LOGIN_HANDLERS[0]} and the identity provider's "
            f"{draft.prefix}{TOKEN_URL}.",
        )


def _check_client_credentials(draft: ConfigBuilder, options: dict[str, str]) -> None:
    for name, key in ((_ID, "clientId"), (_SECRET, "clientSecret")):
        given = draft.values[name]
        text = options.get(key, "") if given is None else getattr(given, "value", given)
        if not text.strip():
            example = OAuthBearer.example
            draft.fault(name, f"is required with OAUTHBEARER, or {key} in {draft.prefix}sasl.jaas.config: {example}")


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme.lower()
    except ValueError:
        return ""
