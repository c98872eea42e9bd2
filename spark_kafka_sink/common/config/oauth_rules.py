"""Rules of OAUTHBEARER's options. No text shows a credential."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from spark_kafka_sink.common.config.clear_text import clear_text_request
from spark_kafka_sink.common.config.draft import Draft
from spark_kafka_sink.common.config.jaas import SHADED, LoginModule
from spark_kafka_sink.common.config.operator_limits import file_fault, url_fault
from spark_kafka_sink.common.config.table import (
    ASSERTION_FILES,
    CLIENT_CREDENTIALS_RETRIEVER,
    DEFAULT_RETRIEVER,
    FILE_RETRIEVER,
    JWT_BEARER_RETRIEVER,
    LOGIN_HANDLERS,
)

OAUTHBEARER: Final = "OAUTHBEARER"
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_HANDLER: Final = "sasl.login.callback.handler.class"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_FILE: Final = "sasl.oauthbearer.assertion.file"
_KEY: Final = "sasl.oauthbearer.assertion.private.key.file"
# Java: OAuthBearerClientInitialResponse.
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")


def oauthbearer(draft: Draft, module: LoginModule | None) -> None:
    """Where tokens come from, and the credentials for it. ``module``: None also where placeholders hide it."""
    options = dict(module.options) if module is not None else {}
    _login_handler(draft)
    for fault in extension_faults(options):
        draft.fault("sasl.jaas.config", fault)
    url = draft.values[_URL] = (draft.values[_URL] or "").strip() or None
    if url is None:
        draft.fault(_URL, "is required with OAUTHBEARER: the identity provider's URL for tokens, or file:/path.")
        return
    scheme = _scheme(url)
    if scheme not in ("http", "https", "file"):
        draft.fault(_URL, "must begin with https://, http:// or file:/.")
        return
    _limited(draft, url)
    clear_text_request(draft, _URL, url)
    retriever = draft.values[_RETRIEVER]
    if retriever == DEFAULT_RETRIEVER:
        retriever = draft.values[_RETRIEVER] = FILE_RETRIEVER if scheme == "file" else CLIENT_CREDENTIALS_RETRIEVER
    if (retriever == FILE_RETRIEVER) != (scheme == "file"):
        name = retriever.rpartition(".")[2]
        needed = "a file: URL" if scheme != "file" else "an http or https URL"
        draft.fault(_RETRIEVER, f"is {name}, which needs {needed} in {draft.prefix}{_URL}.")
    elif retriever == CLIENT_CREDENTIALS_RETRIEVER and (module is not None or draft.values["sasl.jaas.config"] is None):
        _client_credentials(draft, options)
    elif retriever == JWT_BEARER_RETRIEVER and not (draft.values[_FILE] or draft.values[_KEY]):
        draft.fault(_RETRIEVER, f"is JwtBearerJwtRetriever, which needs {draft.prefix}{_KEY} or {draft.prefix}{_FILE}.")


def _limited(draft: Draft, url: str) -> None:
    """The operator's limits of URL and files."""
    limits = {name: file_fault(draft.values[name]) for name in ASSERTION_FILES if draft.values[name]}
    limits[_URL] = file_fault(token_file(url)) if _scheme(url) == "file" else url_fault(url)
    for name, limit in limits.items():
        if limit is not None:
            draft.forbid(name, limit)


def _login_handler(draft: Draft) -> None:
    given = draft.values[_HANDLER]
    if given is None:
        draft.fault(_HANDLER, f"is required with OAUTHBEARER: {LOGIN_HANDLERS[0]}.")
    elif given.removeprefix(SHADED) not in LOGIN_HANDLERS:
        draft.fault(
            _HANDLER,
            f"is {given!r}, a class that only a JVM can run; write {LOGIN_HANDLERS[0]} and the identity provider's "
            f"{draft.prefix}{_URL}.",
        )


def _client_credentials(draft: Draft, options: dict[str, str]) -> None:
    for name, key in ((_ID, "clientId"), (_SECRET, "clientSecret")):
        given = draft.values[name]
        text = options.get(key, "") if given is None else getattr(given, "value", given)
        if not text.strip():
            draft.fault(name, f"is required with OAUTHBEARER, or {key} in {draft.prefix}sasl.jaas.config: {_example()}")


def extension_faults(options: Mapping[str, str]) -> list[str]:
    """What is wrong with the extensions of a login module, in words that follow ``sasl.jaas.config``. Shows no value.

    Placeholders may stand for them, so the login asks again.
    """
    faults = []
    for option, value in options.items():
        name = option.removeprefix("extension_")
        if name == option:
            continue
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            faults.append(f"has extension_{name}; an extension has a name of letters, but not auth.")
        elif not _EXTENSION_VALUE.fullmatch(value):
            fault = f"has extension_{name}, whose value is empty or has control characters or others outside ASCII."
            faults.append(fault)
    return faults


def token_file(url: str) -> str:
    """The path of a ``file:`` URL."""
    return unquote(urlsplit(url).path)


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme.lower()
    except ValueError:
        return ""


def _example() -> str:
    return f'{OAUTH_MODULE} required clientId="…" clientSecret="…";'
