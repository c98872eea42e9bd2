"""Where OAUTHBEARER's tokens come from: a file, client credentials, a JWT bearer (Java: ``JwtRetriever``, KIP-1139)."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.login_options import CLIENT_CREDENTIALS_RETRIEVER, FILE_RETRIEVER
from spark_kafka_sink.common.config.oauth_rules import token_file
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.text_file import read_text
from spark_kafka_sink.network.login.token_endpoint import EndpointOptions, TimeoutOption, TokenEndpoint
from spark_kafka_sink.network.login.token_login import Token, TokenSource
from spark_kafka_sink.network.security.credentials import jaas_options

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}
_LARGEST: Final = 1e300
_JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def token_source(config: ProducerConfig, clock: Clock) -> TokenSource:
    """The source of ``sasl.oauthbearer.jwt.retriever.class``."""
    retriever = config.sasl_oauthbearer_jwt_retriever_class
    if retriever == FILE_RETRIEVER:
        return TokenFile(config)
    if retriever == CLIENT_CREDENTIALS_RETRIEVER:
        return ClientCredentials(config)
    return JwtBearer(config, clock)


class TokenFile:
    """A file with a token, which something else renews; it is read at each fetch."""

    def __init__(self, config: ProducerConfig) -> None:
        assert config.sasl_oauthbearer_token_endpoint_url is not None
        self._path = token_file(config.sasl_oauthbearer_token_endpoint_url)
        self.what = f"a token of {_URL} file:{self._path}"

    def fetch(self) -> Token:
        name = f"{_URL} file:{self._path}"
        return jwt(name, read_text(name, self._path))


class ClientCredentials:
    """Client id and secret in a Basic header (Java: ``ClientCredentialsJwtRetriever``)."""

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
        return client_credentials(
            self._endpoint, client_id, client_secret, scope, urlencoded=config.sasl_oauthbearer_header_urlencode
        )


class JwtBearer:
    """A signed assertion instead of a secret (RFC 7523; Java: ``JwtBearerJwtRetriever``)."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._endpoint = _endpoint(config)
        self.what = f"a token of {self._endpoint.name}"

    def fetch(self) -> Token:
        from spark_kafka_sink.network.login.assertion import assertion

        fields = {
            "grant_type": _JWT_BEARER,
            "assertion": assertion(self._config.with_credentials("sasl_oauthbearer_assertion"), self._clock.epoch_ms()),
            **_scope_field(_scope(self._config, jaas_options(self._config))),
        }
        return jwt(self._endpoint.name, self._endpoint.post(_HEADERS, urlencode(fields)))


def client_credentials(
    endpoint: TokenEndpoint, client_id: str, client_secret: str, scope: str, *, urlencoded: bool = False
) -> Token:
    """A token for client id and secret, in a Basic header (RFC 6749, 4.4)."""
    pair = [client_id.strip(), client_secret.strip()]
    if urlencoded:
        pair = [quote_plus(each) for each in pair]
    basic = base64.b64encode(":".join(pair).encode()).decode()
    fields = {"grant_type": "client_credentials", **_scope_field(scope)}
    return jwt(endpoint.name, endpoint.post({**_HEADERS, "Authorization": f"Basic {basic}"}, urlencode(fields)))


def jwt(name: str, text: str) -> Token:
    """A JWT and its times; its signature is for brokers. ``name`` begins the error."""
    parts = text.split(".")
    claims: Any = None
    if len(parts) == 3:
        with suppress(ValueError):
            claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    if not isinstance(claims, dict):
        raise LoginError(f"{name} returned a token that is not a JWT (three parts with dots between them)")
    expires: Any = claims.get("exp")
    issued: Any = claims.get("iat")
    if not _is_number(expires):
        raise LoginError(f"{name} returned a token without the claim exp (its expiry)")
    return Token(text, expires * 1000.0, issued * 1000.0 if _is_number(issued) else None)


def _is_number(claim: Any) -> bool:
    """Python's JSON has NaN and Infinity, too."""
    return isinstance(claim, (int, float)) and not isinstance(claim, bool) and abs(claim) < _LARGEST


def _endpoint(config: ProducerConfig) -> TokenEndpoint:
    assert config.sasl_oauthbearer_token_endpoint_url is not None
    options = EndpointOptions(
        url_name=_URL,
        url=config.sasl_oauthbearer_token_endpoint_url,
        connect=TimeoutOption("sasl.login.connect.timeout.ms", config.sasl_login_connect_timeout_ms),
        read=TimeoutOption("sasl.login.read.timeout.ms", config.sasl_login_read_timeout_ms),
        total_ms=config.sasl_login_connect_timeout_ms + config.sasl_login_read_timeout_ms,
        trust="ssl.truststore.location in sasl.jaas.config",
        tls_prefix="sasl.jaas.config: ",
    )
    return TokenEndpoint(options, _JaasTls(config))


class _JaasTls:
    """The ``ssl.*`` options in ``sasl.jaas.config``, none of the brokers'."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config

    def tls_config(self) -> ProducerConfig:
        options = {name: value for name, value in jaas_options(self._config).items() if name.startswith("ssl.")}
        return ProducerConfig.parse(options | {"bootstrap.servers": "unused:1", "security.protocol": "SSL"})


def _scope(config: ProducerConfig, options: dict[str, str]) -> str:
    return (config.sasl_oauthbearer_scope or options.get("scope", "")).strip()


def _scope_field(scope: str) -> dict[str, str]:
    return {"scope": scope} if scope else {}
