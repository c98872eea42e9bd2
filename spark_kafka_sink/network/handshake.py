"""The TLS layer and the handshake of a new connection: ApiVersions, then SASL (KIP-43, KIP-152).

``ChannelBuilder`` makes them by ``security.protocol``. A handshake is a generator that yields requests. ``Connection``
sends them, and sends back the bytes after each response's correlation id. When the generator yields a ``LoginStep``,
nothing is sent; it is resumed when the step is done. (Java: ``ChannelBuilder``, ``SaslClientAuthenticator``.)
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink import __version__
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import built_in
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import (
    IllegalSaslStateError,
    KafkaError,
    LoginError,
    NetworkError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    sanitize,
)
from spark_kafka_sink.network.api_versions import every
from spark_kafka_sink.network.connection import ApiVersions, Handshake
from spark_kafka_sink.network.login.refusals import PassingLoginError, may_pass, note_accepted
from spark_kafka_sink.network.login.sasl import Exchange, LoginStep, SaslMechanism, sasl_mechanism
from spark_kafka_sink.network.login.token_login import RetriableLoginError
from spark_kafka_sink.network.messages import API_KEYS, decode_response, response_type, schema, throttle_time_ms

if TYPE_CHECKING:
    from kio.static.protocol import RequestPayload

    from spark_kafka_sink.network.security.tls import TlsLayer
    from spark_kafka_sink.network.security.tls_context import TlsContexts

API_VERSIONS = "api_versions"
CLIENT_SOFTWARE_NAME = "spark-kafka-sink"
LATEST_VERSION: Final = every(API_VERSIONS).highest

FIRST_NAMED_VERSION = 3
_FIRST_WITH_LIFETIME: Final = 1

_SASL_HANDSHAKE: Final = "sasl_handshake"
_SASL_AUTHENTICATE: Final = "sasl_authenticate"

_WITH_TLS: Final = ("SSL", "SASL_SSL")


class ChannelBuilder:
    """Makes the TLS layer and the handshake of each new connection; one per ``NetworkClient``.

    What a protocol does not need is not imported. Raises ``ConfigError`` for stores that cannot be used.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._contexts: TlsContexts | None = None
        self._mechanism: SaslMechanism | None = None
        if config.security_protocol in _WITH_TLS:
            from spark_kafka_sink.network.security.tls_context import TlsContexts

            self._contexts = TlsContexts(config)
        if config.security_protocol.startswith("SASL_"):
            self._mechanism = sasl_mechanism(config)

    def tls_layer(self, node: Node) -> TlsLayer | None:
        """The TLS layer of a new connection; None without TLS. SNI and the certificate check use the node's name in
        bootstrap.servers or Metadata."""
        if self._contexts is None:
            return None
        from spark_kafka_sink.network.security.tls import TlsLayer

        return TlsLayer(self._contexts.context(), node.host, node.port)

    def handshake(self, node: Node) -> Handshake:
        """The handshake of a new connection: ApiVersions, then SASL."""
        peer = str(node)
        if self._mechanism is None:
            return negotiate_api_versions(peer)
        return authenticate(peer, node.host, self._config, self._mechanism)

    def reauthentication(self, node: Node, versions: ApiVersions) -> Handshake:
        """The SASL steps for a connection whose session ends. ``versions``: the connection's."""
        assert self._mechanism is not None
        return authenticate_again(versions, node.host, self._config, self._mechanism)

    def close(self) -> None:
        """Ends the logins; no connection is made afterwards."""
        if self._mechanism is not None:
            self._mechanism.close()


def authenticate(peer: str, host: str, config: ProducerConfig, mechanism: SaslMechanism) -> Handshake:
    """Sends ApiVersions, then logs in by SASL."""
    versions = yield from negotiate_api_versions(peer)
    lifetime_ms = yield from sasl_steps(versions, host, config, mechanism)
    return replace(versions, session_lifetime_ms=lifetime_ms)


def authenticate_again(versions: ApiVersions, host: str, config: ProducerConfig, mechanism: SaslMechanism) -> Handshake:
    """SASL on a connection that is in use, before its session ends (KIP-368)."""
    lifetime_ms = yield from sasl_steps(versions, host, config, mechanism)
    return replace(versions, throttle_ms=0.0, session_lifetime_ms=lifetime_ms)


def sasl_steps(
    versions: ApiVersions, host: str, config: ProducerConfig, mechanism: SaslMechanism
) -> Generator[RequestPayload | LoginStep[Any], memoryview, float]:
    """SaslHandshake and SaslAuthenticate. Returns the session's lifetime in ms, 0 for no end (KIP-368).

    The first message is made before SaslHandshake is sent, because the broker accepts nothing but SASL after it. Raises
    ``AuthenticationError`` with the option to look at.
    """
    peer, mechanism_name = versions.peer, config.sasl_mechanism
    try:
        shake, authenticating = (
            versions.pick(API_KEYS[api], *every(api)) for api in (_SASL_HANDSHAKE, _SASL_AUTHENTICATE)
        )
    except UnsupportedVersionError as error:
        raise IllegalSaslStateError(f"{error}: see security.protocol={config.security_protocol}") from None
    messages = _messages(peer, mechanism_name, mechanism.exchange(host))
    message = next(messages, None)
    while isinstance(message, LoginStep):
        yield message
        message = messages.send(b"")
    data = yield schema(_SASL_HANDSHAKE, shake).SaslHandshakeRequest(mechanism=mechanism_name)
    response: Any = decode_response(data, response_type(_SASL_HANDSHAKE, shake))
    if response.error_code:
        raise _mechanism_refused(peer, config, response)
    lifetime_ms = 0.0
    while message is not None:
        if isinstance(message, LoginStep):
            yield message
            message = messages.send(b"")
            continue
        data = yield schema(_SASL_AUTHENTICATE, authenticating).SaslAuthenticateRequest(auth_bytes=message)
        response = decode_response(data, response_type(_SASL_AUTHENTICATE, authenticating))
        if response.error_code:
            raise _credentials_refused(peer, config, response)
        if authenticating >= _FIRST_WITH_LIFETIME:
            lifetime_ms = float(response.session_lifetime)
        message = messages.send(bytes(response.auth_bytes))
    note_accepted(config)
    return lifetime_ms


def _messages(peer: str, mechanism: str, exchange: Exchange) -> Generator[bytes | LoginStep[Any] | None, bytes, None]:
    """The client's messages, then None. Errors of the mechanism name broker and mechanism."""
    try:
        yield from exchange
    except LoginError as error:
        if isinstance(error.__cause__, RetriableLoginError):
            raise PassingLoginError(str(error)) from error
        raise
    except SaslAuthenticationError as error:
        raise SaslAuthenticationError(f"{peer} failed to authenticate with {mechanism}: {error}") from error
    except Exception as error:
        # Its text and its trace may hold credentials.
        raise LoginError(f"SASL mechanism {mechanism} failed with {type(error).__name__}") from None
    yield None


def _mechanism_refused(peer: str, config: ProducerConfig, response: Any) -> KafkaError:
    mechanism, code = config.sasl_mechanism, response.error_code
    if code is ErrorCode.unsupported_sasl_mechanism:
        return UnsupportedSaslMechanismError(
            f"{peer} does not offer SASL mechanism {mechanism}, but "
            f"{sanitize(', '.join(response.mechanisms)) or 'none'}: see sasl.mechanism"
        )
    if code is ErrorCode.illegal_sasl_state:
        return IllegalSaslStateError(
            f"{peer} expects no SASL on this port (ILLEGAL_SASL_STATE): "
            f"see security.protocol, which is {config.security_protocol}"
        )
    return NetworkError(f"{peer} refused SaslHandshake: {code.name.upper()}")


def _credentials_refused(peer: str, config: ProducerConfig, response: Any) -> KafkaError:
    code, said, mechanism = response.error_code, response.error_message, config.sasl_mechanism
    text = f"{peer} refused the login with {mechanism}: {code.name.upper()}{f' ({sanitize(said)})' if said else ''}"
    if code is ErrorCode.sasl_authentication_failed and not may_pass(config, said or ""):
        found = built_in(mechanism)
        advice = "username and password in sasl.jaas.config" if found is None else found.advice
        return SaslAuthenticationError(f"{text}: see {advice}")
    if code is ErrorCode.illegal_sasl_state:
        return IllegalSaslStateError(text)
    return PassingLoginError(f"{text}; the login is tried again")


def negotiate_api_versions(peer: str) -> Handshake:
    """Sends the latest ApiVersions, then the highest version that the broker names, at last v0 (KIP-511).

    It also sends v0, which has no tagged fields, after a response whose fields this client cannot read.
    """
    version = LATEST_VERSION
    names = {"client_software_name": CLIENT_SOFTWARE_NAME, "client_software_version": __version__}
    while True:
        request = schema(API_VERSIONS, version).ApiVersionsRequest
        data = yield request(**names) if version >= FIRST_NAMED_VERSION else request()
        try:
            response: Any = decode_response(data, response_type(API_VERSIONS, version))
        except NetworkError as error:
            if version == 0:
                raise NetworkError(f"{peer} gave ApiVersions a response that cannot be read: {error}") from error
            # A broker that does not know the version responds in v0.
            version = _next_version(data, version)
            continue
        if response.error_code == ErrorCode.unsupported_version and version > 0:
            version = _next_version(data, version)
        elif response.error_code:
            raise NetworkError(f"{peer} refused ApiVersions v{version}: {response.error_code.name.upper()}")
        else:
            return _api_versions(peer, response)


def _next_version(data: memoryview, refused: int) -> int:
    try:
        response: Any = decode_response(data, response_type(API_VERSIONS, 0))
    except NetworkError:
        return 0
    known = next((api.max_version for api in response.api_keys if api.api_key == API_KEYS[API_VERSIONS]), 0)
    return max(0, min(known, refused - 1)) if response.error_code == ErrorCode.unsupported_version else 0


def _api_versions(peer: str, response: Any) -> ApiVersions:
    return ApiVersions(
        peer,
        {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in response.api_keys},
        {feature.name: int(feature.max_version_level) for feature in getattr(response, "finalized_features", ())},
        throttle_time_ms(response),
    )
