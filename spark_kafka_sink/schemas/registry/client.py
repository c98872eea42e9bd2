"""The client of a registry with Confluent's API (Java: ``SchemaRegistryClient``, ``RestService``).

Credentials are read at each request, because they may change.
"""

from __future__ import annotations

import base64
import logging
import math
import re
import ssl
from collections.abc import Mapping
from random import Random
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from spark_kafka_sink.common.clock import Clock, exponential_delay
from spark_kafka_sink.common.config.option import Password, without_secrets
from spark_kafka_sink.common.config.providers import url_fault
from spark_kafka_sink.common.model import RegistryId
from spark_kafka_sink.common.waiting import Sleeper
from spark_kafka_sink.errors import ConfigError, LoginError, RegistryError, SaslAuthenticationError, sanitize
from spark_kafka_sink.network.login.http import (
    HttpExchangeError,
    HttpLimits,
    HttpRequest,
    HttpResponse,
    TimeoutOption,
    exchange,
)
from spark_kafka_sink.network.login.passwords import user_credentials
from spark_kafka_sink.network.login.token_login import RetriableLoginError, Token
from spark_kafka_sink.network.login.token_sources import TokenEndpoint, client_credentials, token_source
from spark_kafka_sink.network.security.tls_context import TlsContexts
from spark_kafka_sink.schemas.registry.registry_options import (
    AUTO_REGISTER,
    CLIENT_SECRET,
    CONNECT_TIMEOUT,
    ISSUER,
    READ_TIMEOUT,
    TOKEN,
    URL,
    USE_ID,
    USE_LATEST,
    USER_INFO,
    ConfluentOptions,
    CredentialSource,
    RegistryUrl,
)
from spark_kafka_sink.schemas.registry.schema import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    UnreadableResponseError,
    problem,
    read_object,
    registered_schema,
    request_body,
)

_log = logging.getLogger("spark_kafka_sink.schema_registry")

_HEADERS: Final = {
    "Accept": "application/vnd.schemaregistry.v1+json, application/json",
    "Content-Type": "application/vnd.schemaregistry.v1+json",
    # Without it, newer registries leave out what older clients do not know, such as GUIDs.
    "Confluent-Accept-Unknown-Properties": "true",
}
_RETRIABLE: Final = frozenset({408, 429, 500, 502, 503, 504})  # Java: RestService.isRestClientExceptionRetriable
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_BYTES: Final = 16_000_000
_MAX_IMPORTS: Final = 500


class _Call(NamedTuple):
    """A request. ``what``: its name in errors, such as "read the latest version of …". ``missing``: advice for a
    404."""

    what: str
    path: str
    query: Mapping[str, str]
    missing: str = ""
    body: bytes | None = None


class ConfluentRegistry:
    """A registry at one or several URLs. Implements ``Registry``.

    Each request blocks, with all URLs and retries, for at most the larger of ``http.connect.timeout.ms`` and
    ``http.read.timeout.ms``.
    """

    def __init__(self, options: ConfluentOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._authorization = Authorization(options, clock)
        self._random = Random()
        self._current = 0
        self._received = 0  # bytes
        self._tls: TlsContexts | None = None

    def register(self, subject: str, schema: Schema, topic: str = "") -> RegisteredSchema:
        what, missing = f"register a schema under subject {subject}", f"is this {URL} complete, with its path?"
        registered = self._post_schema(subject, "/versions", schema, what, missing)
        if registered.version is None:  # older registries respond with nothing but the id
            return self.lookup(subject, schema)._replace(id=registered.id)
        return registered

    def lookup(self, subject: str, schema: Schema) -> RegisteredSchema:
        missing = f"register the schema first, or set {AUTO_REGISTER}=true"
        return self._post_schema(subject, "", schema, f"find the schema under subject {subject}", missing)

    def latest(self, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        missing = f"register a schema under this subject first, or leave {USE_LATEST} out"
        what = f"read the latest version of subject {subject}"
        call = _Call(what, f"{_path(subject)}/versions/latest", _form(serialized), missing)
        return self._parse_registered(call, subject)

    def by_id(self, schema_id: RegistryId, subject: str, *, serialized: bool = False) -> RegisteredSchema:
        """The schema with an id, in the context of the subject."""
        what = f"read the schema with id {schema_id} for subject {subject}"
        missing = f"{USE_ID} must be the id of a schema in this registry"
        call = _Call(what, f"/schemas/ids/{schema_id}", {"subject": subject, **_form(serialized)}, missing)
        return self._parse_registered(call, subject, schema_id=schema_id)

    def version(self, reference: SchemaReference, *, serialized: bool = False) -> RegisteredSchema:
        """The schema that another schema imports."""
        what = f"read version {reference.version} of subject {reference.subject}, which a schema imports"
        path = f"{_path(reference.subject)}/versions/{reference.version}"
        return self._parse_registered(_Call(what, path, _form(serialized)), reference.subject)

    def imports(self, schema: Schema, *, serialized: bool = False) -> dict[str, Schema]:
        """All schemas that ``schema`` imports, by the names of the imports, each after the schemas that it imports
        itself.

        All together may take the time and the size of one response.
        """
        found: dict[str, Schema] = {}
        seen: set[SchemaReference] = set()
        limit_ms = self._options.connect_timeout_ms + self._options.read_timeout_ms
        end, most_bytes = self._clock.now() + limit_ms, self._received + _MAX_BYTES

        def visit(references: tuple[SchemaReference, ...]) -> None:
            for reference in references:
                if reference in seen:
                    continue
                seen.add(reference)
                if len(seen) > _MAX_IMPORTS:
                    raise RegistryError(f"{URL}: a schema imports more than {_MAX_IMPORTS} others.")
                if self._clock.now() > end:
                    raise RegistryError(
                        f"{URL}: the imports of a schema were not read within {limit_ms:.0f} ms ({CONNECT_TIMEOUT}, "
                        f"{READ_TIMEOUT})."
                    )
                imported = self.version(reference, serialized=serialized).schema
                if self._received > most_bytes:
                    raise RegistryError(f"{URL}: the imports of a schema have more than {_MAX_BYTES} bytes together.")
                visit(imported.references)
                found[reference.name] = imported

        visit(schema.references)
        return found

    def _post_schema(self, subject: str, path: str, schema: Schema, what: str, missing: str) -> RegisteredSchema:
        query = {"normalize": "true"} if self._options.normalize_schemas else {}
        call = _Call(what, _path(subject) + path, query, missing, request_body(schema))
        return self._parse_registered(call, subject, schema)

    def _parse_registered(
        self, call: _Call, subject: str, asked: Schema | None = None, schema_id: RegistryId | None = None
    ) -> RegisteredSchema:
        """The version in the registry's response. ``schema_id``: the id that the response leaves out."""
        url, parsed = self._request(call)
        try:
            return registered_schema(parsed if schema_id is None else {**parsed, "id": schema_id}, subject, asked)
        except UnreadableResponseError as error:
            raise RegistryError(f"{_name(url)} cannot {call.what}: its response {error}.") from None

    def _request(self, call: _Call) -> tuple[RegistryUrl, dict[str, Any]]:
        """The URL that responded, and its response."""
        options, urls = self._options, self._options.urls
        started = self._clock.now()
        deadline = started + max(options.connect_timeout_ms, options.read_timeout_ms)
        failures: dict[RegistryUrl, RegistryError] = {}
        for turn in range(options.max_retries + 1):
            if turn and not self._wait(turn, deadline):
                break
            for left in range(len(urls), 0, -1):
                remaining = deadline - self._clock.now()
                if remaining <= 0 and failures:
                    break
                url = urls[self._current]
                try:
                    return url, self._attempt(url, call, max(remaining / left, 1.0))
                except _RetriableError as error:
                    failures[url] = error.error
                    _log.info("%s", error.error)
                    self._current = (self._current + 1) % len(urls)
        raise _last_error(call, failures, self._clock.now() - started)

    def _wait(self, turn: int, deadline: float) -> bool:
        """Waits before a further round. Returns False if the deadline would pass meanwhile."""
        options = self._options
        longest = exponential_delay(options.retries_wait_ms, options.retries_max_wait_ms, turn - 1)
        end = self._clock.now() + self._random.uniform(0, longest)
        if end >= deadline:
            return False
        while (remaining := end - self._clock.now()) > 0:
            Sleeper().wait(remaining)
        return True

    def _attempt(self, url: RegistryUrl, call: _Call, time_ms: float) -> dict[str, Any]:
        """Sends one request to one URL. Raises ``RegistryError``, ``_RetriableError``."""
        target = url.address + call.path + (f"?{urlencode(call.query)}" if call.query else "")
        if (fault := url_fault(url.address)) is not None:
            raise ConfigError([f"{_name(url)} {fault}."])
        end = self._clock.now() + time_ms
        try:
            headers = {**_HEADERS, **self._authorization.headers(url, time_ms)}
        except RetriableLoginError as error:
            raise _RetriableError(RegistryError(f"{_name(url)} cannot {call.what}: {error}.")) from None
        except SaslAuthenticationError as error:  # LoginError too
            raise RegistryError(f"{_name(url)} cannot {call.what}: {error}.") from None
        left_ms = max(end - self._clock.now(), 1.0)  # fetching a token takes time
        limits = _limits(self._options, left_ms, _MAX_BYTES)
        request = HttpRequest("GET" if call.body is None else "POST", target, headers, call.body)
        try:
            response = exchange(request, self._tls_context(url), limits, self._clock)
        except HttpExchangeError as error:
            failed = RegistryError(f"{_name(url)} cannot {call.what}: {error}.")
            raise failed if error.is_final else _RetriableError(failed) from None
        self._received += len(response.content)
        _log.debug("%s %s: HTTP status %d", request.method, target, response.status)
        if response.status != 200:
            raise self._response_error(url, call, response)
        try:
            return read_object(response.content)
        except UnreadableResponseError as error:
            raise RegistryError(
                f"{_name(url)} cannot {call.what}: its response {error}; is this {URL} complete, with its path?"
            ) from None

    def _tls_context(self, url: RegistryUrl) -> ssl.SSLContext | None:
        if urlsplit(url.address).scheme.lower() != "https":
            return None
        try:
            if self._tls is None:
                self._tls = TlsContexts(self._options.tls)
            return self._tls.context()
        except ConfigError as error:
            raise ConfigError([f"schema.registry.{fault}" for fault in error.faults]) from None

    def _response_error(self, url: RegistryUrl, call: _Call, response: HttpResponse) -> Exception:
        status = response.status
        code, message = problem(response.content)
        said = f"HTTP status {status}" + (f", error code {code}" if code not in (None, status) else "")
        text = f"{_name(url)} cannot {call.what}: {said}{f': {message}' if message else ''}"
        advice = self._advice(url, call, response, has_code=code is not None)
        text = f"{text.rstrip('.')}; {advice}" if advice else text
        error = RegistryError(text if text.endswith(("?", ".")) else f"{text}.", status, code)
        return _RetriableError(error) if status in _RETRIABLE else error

    def _advice(self, url: RegistryUrl, call: _Call, response: HttpResponse, *, has_code: bool) -> str:
        credentials = self._authorization.option(url)
        match response.status:
            case 401 if credentials is None:
                return "it asks for credentials: give basic.auth.user.info or bearer.auth.token"
            case 401:
                return f"it does not accept {credentials}"
            case 403:
                return f"not allowed with {credentials}" if credentials else "not allowed without credentials"
            case 404:
                return call.missing if has_code else f"is this {URL} complete, with its path?"
            case 409:
                return "change the schema, or the compatibility of the subject"
            case status if status in _REDIRECTS:
                location = sanitize(without_secrets(response.headers.get("Location", ""))) or "nowhere"
                return f"it redirects to {location}, where credentials are not sent: write that URL"
        return ""


class _RetriableError(Exception):
    """The same request may succeed later, or at another URL."""

    def __init__(self, error: RegistryError) -> None:
        self.error = error
        super().__init__(error)


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _form(serialized: bool) -> dict[str, str]:
    return {"format": "serialized"} if serialized else {}


def _name(url: RegistryUrl) -> str:
    return f"{URL} {url.address}"


def _limits(options: ConfluentOptions, ms: float, content_bytes: int = 1_000_000) -> HttpLimits:
    """The limits of one exchange, for which ``ms`` are left."""
    return HttpLimits(
        TimeoutOption(CONNECT_TIMEOUT, min(options.connect_timeout_ms, ms)),
        TimeoutOption(READ_TIMEOUT, min(options.read_timeout_ms, ms)),
        ms,
        "schema.registry.ssl.truststore.location",
        content_bytes,
    )


def _last_error(call: _Call, failures: Mapping[RegistryUrl, RegistryError], took_ms: float) -> RegistryError:
    """One error of the last failure of each URL."""
    last = list(failures.values())[-1]
    if len(failures) == 1:
        return last
    texts = "\n".join(f"- {error}" for error in failures.values())
    return RegistryError(f"No {URL} could {call.what} within {took_ms:.0f} ms:\n{texts}", last.status, last.error_code)


_SHORTEST_LIFE_MS: Final = 60_000.0
"""The least time (ms) that a token must still be valid to be used again."""

_IN_A_HEADER: Final = re.compile(r"[\x21-\x7E]+")

_OPTION_OF: Final = {
    CredentialSource.URL: "user and password in schema.registry.url",
    CredentialSource.USER_INFO: USER_INFO,
    CredentialSource.SASL_INHERIT: "kafka.sasl.jaas.config",
    CredentialSource.STATIC_TOKEN: TOKEN,
    CredentialSource.OAUTHBEARER: "bearer.auth.client.id",
    CredentialSource.SASL_OAUTHBEARER_INHERIT: "kafka.sasl.oauthbearer.client.credentials.client.id",
}


class Authorization:
    """Makes the headers of a ``RegistryLogin``; reuses an OAuth token until its end. For one thread at a time."""

    def __init__(self, options: ConfluentOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._token: Token | None = None

    def option(self, url: RegistryUrl) -> str | None:
        """The name of the credentials in errors; None if there are none."""
        source = self._options.login.source
        return None if source is CredentialSource.URL and url.user_info is None else _OPTION_OF[source]

    def headers(self, url: RegistryUrl, time_ms: float) -> dict[str, str]:
        """The headers of one request. ``time_ms``: the time limit for fetching a token.

        Raises ``ConfigError``, ``SaslAuthenticationError``, and ``LoginError`` (including ``RetriableLoginError``).
        """
        login = self._options.login
        match login.source:
            case CredentialSource.URL:
                return {} if url.user_info is None else _basic(self._secret(URL, url.user_info))
            case CredentialSource.USER_INFO:
                return _basic(self._secret(USER_INFO, login.user_info))
            case CredentialSource.SASL_INHERIT:
                assert login.sasl is not None
                user = user_credentials(login.sasl)
                return _basic(f"{user.username}:{user.password}")
            case CredentialSource.STATIC_TOKEN:
                return self._bearer(self._secret(TOKEN, login.token).strip())
            case CredentialSource.OAUTHBEARER | CredentialSource.SASL_OAUTHBEARER_INHERIT:
                return self._bearer(self._oauth_token(time_ms))

    def _bearer(self, token: str) -> dict[str, str]:
        login = self._options.login
        if not _IN_A_HEADER.fullmatch(token):  # the error of http.client shows it
            raise LoginError(f"the token of {_OPTION_OF[login.source]} has characters that an HTTP header cannot have")
        headers = {"Authorization": f"Bearer {token}"}
        if login.logical_cluster:
            headers["target-sr-cluster"] = login.logical_cluster
        if login.identity_pool_id:
            headers["Confluent-Identity-Pool-Id"] = login.identity_pool_id
        return headers

    def _oauth_token(self, time_ms: float) -> str:
        if self._token is None or self._token.expires_at - self._clock.epoch_ms() < _SHORTEST_LIFE_MS:
            self._token = self._fetch(math.ceil(time_ms))
        return self._token.value

    def _fetch(self, time_ms: int) -> Token:
        login = self._options.login
        if login.source is CredentialSource.SASL_OAUTHBEARER_INHERIT:
            assert login.sasl is not None
            return token_source(login.sasl, self._clock).fetch()
        assert login.issuer_url is not None
        assert login.client_id is not None
        endpoint = TokenEndpoint(
            url_name=ISSUER,
            url=login.issuer_url,
            limits=_limits(self._options, time_ms),
            tls_prefix="schema.registry.",
        )
        secret = self._secret(CLIENT_SECRET, login.client_secret)
        scope = (login.scope or "").strip()
        return client_credentials(endpoint, self._options.tls, login.client_id.strip(), secret.strip(), scope)

    def _secret(self, name: str, secret: Password | None) -> str:
        assert secret is not None
        return self._options.tls.config_providers.credential(name, secret.value)


def _basic(user_info: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(user_info.encode()).decode()}"}
