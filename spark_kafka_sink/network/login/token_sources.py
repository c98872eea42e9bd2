"""The sources of OAUTHBEARER's tokens: a file, client credentials, a JWT bearer (Java: ``JwtRetriever``, KIP-1139). The
latter two send a POST to an endpoint that issues tokens (Java: ``HttpJwtRetriever``).
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import uuid
from collections.abc import Mapping
from contextlib import suppress
from stat import S_ISREG
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import without_secrets
from spark_kafka_sink.common.config.providers import file_fault, path_of_url, url_fault
from spark_kafka_sink.common.config.security_rules import CLIENT_CREDENTIALS_RETRIEVER, FILE_RETRIEVER, TOKEN_URL
from spark_kafka_sink.errors import ConfigError, LoginError, sanitize
from spark_kafka_sink.network.login.http import (
    HttpExchangeError,
    HttpFault,
    HttpLimits,
    HttpRequest,
    exchange,
)
from spark_kafka_sink.network.login.refusals import token_error
from spark_kafka_sink.network.login.sasl import jaas_options
from spark_kafka_sink.network.login.token_login import (
    RefusedLoginError,
    RetriableLoginError,
    Token,
    TokenSource,
    base64url,
)
from spark_kafka_sink.network.security.tls_context import TlsContexts

_HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_LARGEST: Final = 1e300
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION: Final = "sasl.oauthbearer.assertion."
_TLS_PREFIX: Final = "sasl.jaas.config: "
_P256_BYTES: Final = 32
_MAX_BYTES: Final = 1_000_000
_OK: Final = (200, 201)
# Java: HttpJwtRetriever.UNRETRYABLE_HTTP_CODES; a redirect would lose the request's body.
_FINAL: Final = frozenset(
    {301, 302, 303, 307, 308, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}
)
_REFUSED: Final = frozenset({400, 401})
"""The statuses for wrong client credentials (RFC 6749, 5.2)."""
_MAX_SHOWN: Final = 300


def token_source(config: ProducerConfig, clock: Clock) -> TokenSource:
    """The source of ``sasl.oauthbearer.jwt.retriever.class``."""
    retriever = config.sasl_oauthbearer_jwt_retriever_class
    if retriever == FILE_RETRIEVER:
        return TokenFile(config)
    if retriever == CLIENT_CREDENTIALS_RETRIEVER:
        return ClientCredentials(config)
    return JwtBearer(config, clock)


class TokenFile:
    """A file with a token that another program renews; it is read at each fetch."""

    def __init__(self, config: ProducerConfig) -> None:
        assert config.sasl_oauthbearer_token_endpoint_url is not None
        self._path = path_of_url(config.sasl_oauthbearer_token_endpoint_url)
        self._name = f"{TOKEN_URL} {without_secrets(f'file:{self._path}')}"
        self.what = f"a token of {self._name}"

    def fetch(self) -> Token:
        return jwt(self._name, read_text(self._name, self._path))


class ClientCredentials:
    """Tokens for a client id and secret (Java: ``ClientCredentialsJwtRetriever``)."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._endpoint = _endpoint(config)
        self.what = f"a token of {self._endpoint.name}"

    def fetch(self) -> Token:
        config = self._config.with_credentials("sasl_oauthbearer_client")
        options = jaas_options(self._config)
        secret = config.sasl_oauthbearer_client_credentials_client_secret
        client_id = config.sasl_oauthbearer_client_credentials_client_id or options.get("clientId", "")
        client_secret = secret.value if secret is not None else options.get("clientSecret", "")
        scope = _scope(config, options)
        pair = (client_id.strip(), client_secret.strip())
        if config.sasl_oauthbearer_header_urlencode:
            pair = (quote_plus(pair[0]), quote_plus(pair[1]))
        return client_credentials(self._endpoint, _tls(options), *pair, scope)


class JwtBearer:
    """Tokens for a signed assertion instead of a secret (RFC 7523; Java: ``JwtBearerJwtRetriever``)."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._endpoint = _endpoint(config)
        self.what = f"a token of {self._endpoint.name}"

    def fetch(self) -> Token:
        options = jaas_options(self._config)
        fields = {
            "grant_type": _JWT_BEARER,
            "assertion": assertion(self._config.with_credentials("sasl_oauthbearer_assertion"), self._clock.epoch_ms()),
            **_scope_field(_scope(self._config, options)),
        }
        return jwt(self._endpoint.name, self._endpoint.post(_tls(options), _HEADERS, urlencode(fields)))


def client_credentials(
    endpoint: TokenEndpoint, tls: ProducerConfig, client_id: str, client_secret: str, scope: str
) -> Token:
    """A token for a client id and secret, which are sent in a Basic header (RFC 6749, 4.4)."""
    basic = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    fields = {"grant_type": "client_credentials", **_scope_field(scope)}
    headers = {**_HEADERS, "Authorization": f"Basic {basic}"}
    return jwt(endpoint.name, endpoint.post(tls, headers, urlencode(fields)))


def jwt(name: str, text: str) -> Token:
    """The token in ``text``, a JWT, with its times. Only brokers check its signature. ``name`` begins errors."""
    parts = text.split(".")
    claims: Any = None
    if len(parts) == 3:
        with suppress(ValueError, RecursionError):
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    if not isinstance(claims, dict):
        raise LoginError(f"{name} returned a token that is not a JWT (three parts with dots between them)")
    expires: Any = claims.get("exp")
    issued: Any = claims.get("iat")
    if not _is_number(expires):
        raise LoginError(f"{name} returned a token without the claim exp (its expiry)")
    return Token(text, expires * 1000.0, issued * 1000.0 if _is_number(issued) else None)


def _is_number(claim: Any) -> bool:
    """Whether a claim is a finite number: Python's JSON also reads NaN and Infinity."""
    return isinstance(claim, (int, float)) and not isinstance(claim, bool) and abs(claim) < _LARGEST


def _endpoint(config: ProducerConfig) -> TokenEndpoint:
    assert config.sasl_oauthbearer_token_endpoint_url is not None
    return TokenEndpoint(
        url_name=TOKEN_URL,
        url=config.sasl_oauthbearer_token_endpoint_url,
        connect=TimeoutOption("sasl.login.connect.timeout.ms", config.sasl_login_connect_timeout_ms),
        read=TimeoutOption("sasl.login.read.timeout.ms", config.sasl_login_read_timeout_ms),
        total_ms=config.sasl_login_connect_timeout_ms + config.sasl_login_read_timeout_ms,
        trust="ssl.truststore.location in sasl.jaas.config",
        tls_prefix=_TLS_PREFIX,
    )


def _tls(jaas: dict[str, str]) -> ProducerConfig:
    """The endpoint's ``ssl.*`` options, which are those in ``sasl.jaas.config`` and not those of the brokers."""
    options = {name: value for name, value in jaas.items() if name.startswith("ssl.")}
    try:
        return ProducerConfig.parse(options | {"bootstrap.servers": "unused:1", "security.protocol": "SSL"})
    except ConfigError as error:
        raise LoginError(f"{_TLS_PREFIX}{error}") from None


def _scope(config: ProducerConfig, options: dict[str, str]) -> str:
    return (config.sasl_oauthbearer_scope or options.get("scope", "")).strip()


def _scope_field(scope: str) -> dict[str, str]:
    return {"scope": scope} if scope else {}


def assertion(config: ProducerConfig, now: int) -> str:
    """The assertion of a JWT bearer grant at ``now`` (ms since 1970): from a file, or signed here.

    Reads its files at each call. Raises ``LoginError``. (Java: ``DefaultAssertionCreator``)
    """
    finished = config.sasl_oauthbearer_assertion_file
    if finished is not None:
        return read_text(f"{_ASSERTION}file {finished}", finished)
    header, payload = _template(config)
    header |= {"alg": config.sasl_oauthbearer_assertion_algorithm, "typ": "JWT"}
    seconds = now // 1000
    payload |= {
        "iat": seconds,
        "exp": seconds + config.sasl_oauthbearer_assertion_claim_exp_seconds,
        "nbf": seconds - config.sasl_oauthbearer_assertion_claim_nbf_seconds,
    }
    if config.sasl_oauthbearer_assertion_claim_jti_include:
        payload["jti"] = str(uuid.uuid4())
    content = ".".join(base64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, payload))
    return f"{content}.{base64url(_signature(config, content.encode()))}"


def _template(config: ProducerConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and payload. Claims of the file replace those of the options."""
    claims = {
        "aud": config.sasl_oauthbearer_assertion_claim_aud,
        "iss": config.sasl_oauthbearer_assertion_claim_iss,
        "sub": config.sasl_oauthbearer_assertion_claim_sub,
    }
    payload: dict[str, Any] = {name: value for name, value in claims.items() if value is not None}
    path = config.sasl_oauthbearer_assertion_template_file
    if path is None:
        return {}, payload
    name = f"{_ASSERTION}template.file {path}"
    try:
        template = json.loads(read_text(name, path))
        header, given = template.get("header") or {}, template.get("payload") or {}
        return dict(header), payload | dict(given)
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise LoginError(f'{name} must be a JSON object: {{"header": {{…}}, "payload": {{…}}}}') from None


def _signature(config: ProducerConfig, content: bytes) -> bytes:
    path = config.sasl_oauthbearer_assertion_private_key_file
    name = f"{_ASSERTION}private.key.file {path}"
    key = _private_key(name, config)
    algorithm = config.sasl_oauthbearer_assertion_algorithm
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        numbers = decode_dss_signature(key.sign(content, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(_P256_BYTES, "big") for number in numbers)
    needed = "an RSA key" if algorithm == "RS256" else "a key of the curve P-256"
    raise LoginError(f"{name} is not {needed}, which {_ASSERTION}algorithm={algorithm} needs")


def _private_key(name: str, config: ProducerConfig) -> PrivateKeyTypes:
    """The private key in PEM, in DER or, as Java reads it, in base64 of DER without the lines of PEM."""
    assert config.sasl_oauthbearer_assertion_private_key_file is not None
    passphrase = config.sasl_oauthbearer_assertion_private_key_passphrase
    password = passphrase.value.encode() if passphrase is not None else None
    content = read_bytes(name, config.sasl_oauthbearer_assertion_private_key_file)
    try:
        if b"-----BEGIN" in content:
            return load_pem_private_key(content, password)
        der = content if content.startswith(b"\x30") else base64.b64decode(content, validate=False)
        return load_der_private_key(der, password)
    except Exception:  # cryptography raises several; their texts may quote the key
        about = f"{_ASSERTION}private.key.passphrase"
        fault = f"{about} is wrong, or the key is damaged" if password else f"it is damaged, or needs {about}"
        raise LoginError(f"{name} cannot be read as a private key: {fault}") from None


def read_text(name: str, path: str) -> str:
    """The text of a UTF-8 file, trimmed. ``name``, option and file, begins errors. Raises like ``read_bytes``."""
    try:
        text = read_bytes(name, path).decode().strip()
    except UnicodeDecodeError:
        raise LoginError(f"{name} cannot be read: it is not UTF-8") from None
    if not text:
        raise LoginError(f"{name} is empty")
    return text


def read_bytes(name: str, path: str) -> bytes:
    """The content of a file that holds a token, an assertion, its template or its private key.

    Raises ``LoginError``, including for a file that has more than 1 MB, that the operator's limits forbid, or that is
    not regular: a pipe would block the login, and a device may have no end.
    """
    if (fault := file_fault(path)) is not None:
        raise LoginError(f"{name} {fault}")
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LoginError(f"{name} is not a regular file")
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its path has a NUL character"
        raise LoginError(f"{name} cannot be read: {reason}") from None
    if len(content) > _MAX_BYTES:
        raise LoginError(f"{name} has more than {_MAX_BYTES} bytes")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Opens without blocking. (Opening a pipe without a writer would block.)"""
    return os.open(path, flags | os.O_NONBLOCK)


class TimeoutOption(NamedTuple):
    name: str
    ms: int


class TokenEndpoint(NamedTuple):
    """An endpoint for tokens: its options, with their names for errors.

    ``total_ms`` limits a whole request. ``trust`` names the option that trusts the endpoint's certificates; errors of
    the ``ssl.*`` options begin with ``tls_prefix``.
    """

    url_name: str
    url: str
    connect: TimeoutOption
    read: TimeoutOption
    total_ms: int
    trust: str
    tls_prefix: str

    @property
    def name(self) -> str:
        return f"{self.url_name} {without_secrets(self.url)}"

    def post(self, tls: ProducerConfig, headers: Mapping[str, str], body: str) -> str:
        """The token in the response. ``tls`` has the endpoint's ``ssl.*`` options; without them, the system's
        certificates are trusted. Raises ``LoginError``, ``RetriableLoginError``.
        """
        if (fault := url_fault(self.url)) is not None:
            raise LoginError(f"{self.name} {fault}")
        limits = HttpLimits(self.connect.ms, self.read.ms, self.total_ms, _MAX_BYTES)
        request = HttpRequest("POST", self.url, headers, body.encode())
        try:
            response = exchange(request, self._tls_context(tls), limits, SystemClock())
        except HttpExchangeError as error:
            raise self._failed(error) from None
        if response.status not in _OK:
            kind = LoginError if response.status in _FINAL else RetriableLoginError
            kind = RefusedLoginError if response.status in _REFUSED else kind
            text = f"{self.name} responded with HTTP status {response.status}{_error_of(response.content)}"
            raise token_error(text, kind)
        return self._token_of(response.content)

    def _failed(self, error: HttpExchangeError) -> LoginError:
        connect, read = self.connect, self.read
        texts = {
            HttpFault.TLS: f"could not be reached by TLS: {error.reason}. Its certificate must be trusted by "
            f"{self.trust}, or by the system",
            HttpFault.TOO_LARGE: f"responded with more than {_MAX_BYTES} bytes",
            HttpFault.ENCODED: "responded with a Content-Encoding, which was not asked for",
            HttpFault.CONNECT: f"could not be connected to: {error.reason}",
            HttpFault.CONNECT_TIMEOUT: f"could not be connected to within {connect.ms} ms ({connect.name})",
            HttpFault.READ_TIMEOUT: f"did not respond within {read.ms} ms ({read.name})",
            HttpFault.BODY_TIMEOUT: f"did not end its response within {self.total_ms} ms ({connect.name}, {read.name})",
            HttpFault.NO_RESPONSE: f"did not respond: {error.reason}",
        }
        kind = LoginError if error.fault.is_final else RetriableLoginError
        return kind(f"{self.name} {texts[error.fault]}")

    def _tls_context(self, tls: ProducerConfig) -> ssl.SSLContext | None:
        if urlsplit(self.url).scheme.lower() != "https":
            return None
        try:
            return TlsContexts(tls).context()
        except ConfigError as error:
            raise LoginError(f"{self.tls_prefix}{error}") from None

    def _token_of(self, content: bytes) -> str:
        """``access_token``, otherwise ``id_token``, as in Java."""
        parsed = _json(content)
        for name in ("access_token", "id_token"):
            value = parsed.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
        raise LoginError(f"{self.name} responded without an access_token{_error_of(content)}")


def _json(content: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        parsed = json.loads(content)
        if isinstance(parsed, dict):
            return parsed
    return {}


def _error_of(content: bytes) -> str:
    """The error in a response (RFC 6749, 5.2), the only part that is shown, because it has no secret."""
    parsed = _json(content)
    texts = [text for name in ("error", "error_description") if isinstance(text := parsed.get(name), str) and text]
    return f" ({sanitize(', '.join(texts), _MAX_SHOWN)})" if texts else ""
