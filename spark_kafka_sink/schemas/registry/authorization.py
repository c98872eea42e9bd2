"""The headers that authorize a request. Credentials are read at each request, because they may change."""

from __future__ import annotations

import base64
import math
import re
from typing import Final

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.plain import user_credentials
from spark_kafka_sink.network.login.token_login import Token
from spark_kafka_sink.network.login.token_sources import TimeoutOption, TokenEndpoint, client_credentials, token_source
from spark_kafka_sink.schemas.registry.login_options import (
    CLIENT_SECRET,
    ISSUER,
    TOKEN,
    USER_INFO,
    CredentialSource,
)
from spark_kafka_sink.schemas.registry.registry_options import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    URL,
    RegistryOptions,
    RegistryUrl,
)

_SHORTEST_LIFE_MS: Final = 60_000.0
"""A token is used again if at least this time of its life is left."""

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
    """Makes the headers of ``RegistryOptions.login``; reuses an OAuth token until its end. For one thread at a time."""

    def __init__(self, options: RegistryOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._token: Token | None = None

    def option(self, url: RegistryUrl) -> str | None:
        """What errors call the credentials; None if there are none."""
        source = self._options.login.source
        return None if source is CredentialSource.URL and url.user_info is None else _OPTION_OF[source]

    def headers(self, url: RegistryUrl, time_ms: float) -> dict[str, str]:
        """The headers of one request. ``time_ms``: the time limit for fetching a token.

        Raises ``ConfigError``, ``SaslAuthenticationError``, and ``LoginError``, among them ``RetriableLoginError``.
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
            connect=TimeoutOption(CONNECT_TIMEOUT, min(self._options.connect_timeout_ms, time_ms)),
            read=TimeoutOption(READ_TIMEOUT, min(self._options.read_timeout_ms, time_ms)),
            total_ms=time_ms,
            trust="schema.registry.ssl.truststore.location",
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
