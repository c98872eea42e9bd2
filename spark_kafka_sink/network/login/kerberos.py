"""SASL/GSSAPI (RFC 4752): Kerberos, without a security layer, as Kafka's brokers have it."""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from spark_kafka_sink.common.clock import NEVER, Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.kerberos_rules import SERVICE_NAME, service_name_fault
from spark_kafka_sink.errors import LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.credentials import jaas_options
from spark_kafka_sink.network.login.sasl import Exchange, LoginStep
from spark_kafka_sink.network.login.token_login import SHARED_LOGINS, CredentialSource, LoginThread, TokenLogin

_NO_LAYER: Final = 1
_LAYERS_BYTES: Final = 4


class SecurityContext(Protocol):
    """One authentication with one broker. ``what`` follows "waiting for"."""

    what: str
    established: bool

    def advance(self, token: bytes) -> bytes:
        """The next message for the broker; ``token``: the broker's, empty at first. It may ask the KDC: call it on a
        login's thread. Raises ``LoginError``.
        """

    def unwrap(self, message: bytes) -> bytes:
        """The content of the broker's message. Raises ``SaslAuthenticationError``."""

    def wrap(self, content: bytes) -> bytes:
        """A message with integrity, without confidentiality."""


class Ticket(Protocol):
    """The user's tickets."""

    @property
    def principal(self) -> str: ...

    @property
    def expires_at(self) -> float: ...

    @property
    def issued_at(self) -> float | None: ...

    def context(self, service: str, host: str) -> SecurityContext: ...


class Kerberos:
    """``source``: the tickets; shared with the other clients of the process that have the same credentials."""

    def __init__(self, config: ProducerConfig, source: CredentialSource[Ticket]) -> None:
        self._config = config
        self._source = source
        self._login: TokenLogin[Ticket] | None = None
        self._steps = ContextSteps(SystemClock())

    def exchange(self, host: str) -> Exchange:
        service = service_name(self._config)
        if self._login is None:
            self._login = SHARED_LOGINS.acquire(self._config, self._source)
        ticket_step = self._login.token()
        yield ticket_step
        ticket = ticket_step.result()
        context = ticket.context(service, host)
        token = b""
        while not context.established:
            step = self._steps.advance(context, token)
            yield step
            token = yield step.result()
        yield context.wrap(_without_layer(context.unwrap(token), ticket.principal))

    def close(self) -> None:
        self._steps.close()
        if self._login is not None:
            self._login = None
            SHARED_LOGINS.release(self._config)


class ContextSteps:
    """Runs the steps of security contexts on a thread of its own, apart from the one that renews the tickets."""

    def __init__(self, clock: Clock) -> None:
        self._thread = LoginThread(self, clock, "pykafka-login-GSSAPI-steps")
        self._waiting: deque[tuple[LoginStep[bytes], SecurityContext, bytes]] = deque()

    def advance(self, context: SecurityContext, token: bytes) -> LoginStep[bytes]:
        """A step that ends with the next message for the broker."""
        step: LoginStep[bytes] = LoginStep(context.what)
        self._waiting.append((step, context, token))
        self._thread.wake()
        return step

    def close(self) -> None:
        self._thread.close()

    def run_once(self, now: float) -> float:
        while self._waiting:
            step, context, token = self._waiting.popleft()
            try:
                message = context.advance(token)
            except LoginError as error:
                step.fail(error)
            except Exception as error:
                step.fail(LoginError(f"{step.what} could not be obtained: {type(error).__name__}"))
            else:
                step.succeed(message)
        return NEVER


def service_name(config: ProducerConfig) -> str:
    """Raises ``SaslAuthenticationError``: the rules do not see what stands behind placeholders."""
    jaas = jaas_options(config)
    if (fault := service_name_fault(config.sasl_kerberos_service_name, jaas)) is not None:
        raise SaslAuthenticationError(f"{SERVICE_NAME} {fault.rstrip('.')}")
    return config.sasl_kerberos_service_name or jaas["serviceName"]


def _without_layer(offer: bytes, principal: str) -> bytes:
    """Offer: a bit for each layer, then the largest message. Response: no layer, size 0, the authorization id."""
    if len(offer) != _LAYERS_BYTES or not offer[0] & _NO_LAYER:
        raise SaslAuthenticationError(
            "it does not offer authentication without a security layer, as Kafka's brokers do"
        )
    return bytes([_NO_LAYER, 0, 0, 0]) + principal.encode()
