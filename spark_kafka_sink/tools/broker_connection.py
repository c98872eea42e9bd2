"""Connections to brokers, set up step by step by the network client of a write; each step is a ``Finding``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509

from spark_kafka_sink.common.clock import NEVER, Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import CONNECTION, Node
from spark_kafka_sink.errors import (
    AuthenticationError,
    ConnectionStep,
    FailedStep,
    KafkaError,
    NetworkError,
    listed,
    sanitize,
)
from spark_kafka_sink.network.api_versions import INIT_PRODUCER_ID, VersionRange, camel_case, every
from spark_kafka_sink.network.connection import ApiVersions, Handshake
from spark_kafka_sink.network.diagnosis import advice, unmet
from spark_kafka_sink.network.handshake import ChannelBuilder
from spark_kafka_sink.network.login.sasl import LoginStep, username
from spark_kafka_sink.network.messages import API_KEYS, KioRequest, MakeEntity, Response
from spark_kafka_sink.network.name_lookup import UNRESOLVED, Address, AddressList, NameLookup, numeric_address
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.tools.findings import Finding, Outcome

if TYPE_CHECKING:
    from spark_kafka_sink.network.security.tls import TlsLayer

# By kio's names.
_NAMED_APIS: Final = ("produce", "metadata", "init_producer_id")
_VERSIONS: Final = "versions"
_ESTABLISHED: Final = "could not be established: "


class BrokerConnections(Rpc):
    """Connections that report each step: ``establish`` one, then ``ask`` its broker. Belongs to one thread.

    ``refused``: whether an authentication error ended the last attempt; other brokers would refuse this client as well.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        self.refused = False
        self._config = config
        self._channels = _NotedChannels(config, clock)
        self._to_address = _ToAddress(config.send_buffer_bytes, config.receive_buffer_bytes)
        super().__init__(config, clock, self._to_address, channels=self._channels)
        self._client.should_warn = lambda: False  # a finding says it

    def establish(self, node: Node) -> Generator[Finding, None, Node | None]:
        """The findings of each step. Returns the node to ``ask``; None if a step, which is the last one, has failed."""
        self.refused = False
        self._channels.forget()
        began = self.now()
        try:
            connected = yield from self._steps(node)
        except KafkaError as error:
            self.refused = isinstance(error, AuthenticationError)
            yield self._failure(node, error, self.now() - max([began, *self._channels.ended.values()]))
            return None
        versions = self._versions(connected)
        yield versions
        return connected if versions.outcome is Outcome.OK else None

    def ask(self, node: Node, api: str, versions: VersionRange, make: MakeEntity) -> Any:
        """The response's body. Raises ``KafkaError``; then the connection must not be used again."""
        responses: list[Response] = []
        while not self._client.ready(node, self.now()):  # a broker may throttle this client
            self._proceed(node)
        self._client.send(node.id, KioRequest(api, versions, make, responses.append), self.now())
        self._serve(0.0)  # a request whose API the broker lacks has ended already
        while not responses:
            self._poll(self.now(), NEVER)
        if (error := responses[0].error) is not None:
            raise error
        return responses[0].body

    # Steps

    def _steps(self, node: Node) -> Generator[Finding, None, Node]:
        began = self.now()
        addresses = self._resolve(node)
        texts = [_address_text(address) for address in addresses]
        yield _ok(node, ConnectionStep.DNS, ", ".join(dict.fromkeys(texts)), self.now() - began)
        reasons: list[str] = []
        for number, (address, text) in enumerate(zip(addresses, texts, strict=True)):
            # For the client it is another node, with nothing to wait for after the failure of the last address.
            attempt = replace(node, id=node.id + number * CONNECTION * (-1 if node.id < 0 else 1))
            self._to_address.address = address
            try:
                yield from self._attempt(attempt, f"{text} port {node.port}", reasons)
            except KafkaError as error:
                failed = error.failed_step
                if failed is None or failed.step is not ConnectionStep.TCP:
                    raise
                reason = str(error).partition(_ESTABLISHED)[2]
                reasons.append(f"{text}: {reason}" if len(addresses) > 1 else reason)
            else:
                return attempt
        raise _not_connected(node, ConnectionStep.TCP, ", ".join(reasons))

    def _resolve(self, node: Node) -> tuple[Address, ...]:
        if known := numeric_address(node.host, node.port):
            return known
        timeout_ms = self._config.socket_connection_setup_timeout_ms
        lookup = NameLookup(node.host, node.port, self._to_address.wakeup)
        if not self.run_until(lambda: lookup.done, timeout_ms):
            late = f"no response within {timeout_ms} ms (socket.connection.setup.timeout.ms)"
            raise _not_connected(node, ConnectionStep.DNS, f"{UNRESOLVED}: {late}")
        if lookup.error:
            raise _not_connected(node, ConnectionStep.DNS, f"{UNRESOLVED}: {lookup.error}")
        return tuple({_address_text(address): address for address in lookup.addresses}.values())

    def _attempt(self, node: Node, address: str, skipped: list[str]) -> Iterator[Finding]:
        """Sets up one connection. An alert about the client's certificate may come as late as the first response. Then
        a finding that TLS has failed follows the finding that TLS is established."""
        before, told = self.now(), 0
        while True:
            is_ready = self._client.ready(node, self.now())
            for step, ended in [*self._channels.ended.items()][told:]:
                yield _ok(node, step, self._text(step, address, skipped), ended - before)
                before, told = ended, told + 1
            if is_ready:
                return
            self._proceed(node)

    def _proceed(self, node: Node) -> None:
        """Waits for an event of a connection that is not ready. Raises its error once it has failed."""
        if self._client.has_failed(node.id) and (error := self._client.last_error(node.id)) is not None:
            raise error
        self._poll(now := self.now(), now + self._client.ready_delay(node, now))

    def _text(self, step: ConnectionStep, address: str, skipped: list[str]) -> str:
        match step:
            case ConnectionStep.TCP:
                return "; ".join([address, *(f"{reason}: it is skipped" for reason in skipped)])
            case ConnectionStep.TLS if self._channels.tls is not None:
                version, cipher = self._channels.tls.version_and_cipher()
                return f"{version}, {cipher}\n{self._peer_text(self._channels.tls)}"
            case ConnectionStep.SASL:
                user = username(self._config)
                return self._config.sasl_mechanism + (f" as {user}" if user is not None else "")
        return "a Kafka broker responds"

    def _versions(self, node: Node) -> Finding:
        theirs, subject = self.api_versions(node.id), _subject(node)
        assert theirs is not None
        if missing := list(unmet(self._config, theirs)):
            text = f"{'; '.join(missing)}. This sink needs the protocol of Kafka 2.1 or later"
            return Finding(subject, _VERSIONS, Outcome.FAILED, text)
        texts = [
            f"{camel_case(api)} v{theirs.pick(API_KEYS[api], *every(api))}"
            for api in _NAMED_APIS
            if theirs.speaks(API_KEYS[api], every(api))
        ]
        if not theirs.speaks(API_KEYS["init_producer_id"], INIT_PRODUCER_ID):
            texts.append("no InitProducerId: rows are written without idempotence")
        return Finding(subject, _VERSIONS, Outcome.OK, ", ".join(texts))

    def _failure(self, node: Node, error: KafkaError, elapsed_ms: float) -> Finding:
        step = self._channels.unfinished if error.failed_step is None else error.failed_step.step
        texts = [f"{error}", advice(error)]
        if step is ConnectionStep.TLS and self._channels.tls is not None:
            texts.append(self._peer_text(self._channels.tls))
        return Finding(_subject(node), step.value, Outcome.FAILED, "\n".join(filter(None, texts)), elapsed_ms)

    def _peer_text(self, tls: TlsLayer) -> str:
        certificate = tls.peer_certificate()
        now = datetime.fromtimestamp(self._clock.epoch_ms() / 1000, UTC)
        return "" if certificate is None else certificate_text(certificate, now)


class _NotedChannels(ChannelBuilder):
    """Channels that note the TLS layer of the last connection, and the times at which its steps ended, in their order
    (monotonic ms)."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        super().__init__(config)
        self._now: Callable[[], float] = clock.now
        self._logs_in = config.security_protocol.startswith("SASL_")
        self.forget()

    def forget(self) -> None:
        self.tls: TlsLayer | None = None
        self.ended: dict[ConnectionStep, float] = {}

    @property
    def unfinished(self) -> ConnectionStep:
        """The first step after TCP that has not ended, for an error of the probe that distinguishes TLS from
        plaintext."""
        is_in_tls = self.tls is not None and ConnectionStep.TLS not in self.ended
        return ConnectionStep.TLS if is_in_tls else ConnectionStep.KAFKA

    def tls_layer(self, node: Node) -> TlsLayer | None:
        self.ended[ConnectionStep.TCP] = self._now()
        self.tls = super().tls_layer(node)
        return self.tls

    def handshake(self, node: Node) -> Handshake:
        steps = super().handshake(node)
        request = next(steps)  # runs when the transport and TLS are established
        if self.tls is not None:
            self.ended[ConnectionStep.TLS] = self._now()
        while True:
            response = yield request
            try:
                request = steps.send(response)
            except StopIteration as done:
                self.ended.setdefault(ConnectionStep.KAFKA, self._now())
                if self._logs_in:
                    self.ended[ConnectionStep.SASL] = self._now()
                versions: ApiVersions = done.value
                return versions
            if isinstance(request, LoginStep) or request.__api_key__ != API_KEYS["api_versions"]:
                self.ended.setdefault(ConnectionStep.KAFKA, self._now())


class _ToAddress(Selector):
    """A transport that connects to ``address`` for any host, because each address is a step of its own."""

    address: Address

    def connect(self, connection_id: int, host: str, port: int, addresses: AddressList | None = None) -> None:
        chosen = AddressList()
        chosen.fill([self.address])
        super().connect(connection_id, host, port, chosen)


def _subject(node: Node) -> str:
    return f"{node.host}:{node.port}"


def _ok(node: Node, step: ConnectionStep, text: str, elapsed_ms: float) -> Finding:
    return Finding(_subject(node), step.value, Outcome.OK, text, elapsed_ms)


def _not_connected(node: Node, step: ConnectionStep, reason: str) -> NetworkError:
    error = NetworkError(f"Connection to {node} {_ESTABLISHED}{reason}")
    error.failed_step = FailedStep(step, _subject(node), node.id < 0)
    return error


def _address_text(address: Address) -> str:
    """The address as text; a link-local IPv6 address has its zone."""
    host, _port, *rest = address[1]
    zone = rest[1] if len(rest) > 1 else 0
    return f"{host}%{zone}" if zone and "%" not in host else str(host)


def certificate_text(der: bytes, now: datetime) -> str:
    """A broker's certificate in words: subject, names, issuer and dates."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        subject, issuer, names = _name(certificate.subject), _name(certificate.issuer), _names(certificate)
    except ValueError as error:
        return f"a certificate that cannot be read: {sanitize(str(error))}"
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    left = f"{(end - now).days} days left" if begin <= now <= end else "expired" if now > end else "not valid yet"
    return (
        f"certificate of {subject}, for {names}, issued by {issuer}, valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d} "
        f"({left})"
    )


def _name(name: x509.Name) -> str:
    return sanitize(name.rfc4514_string()) or "an empty name"


def _names(certificate: x509.Certificate) -> str:
    """The names that a client accepts (subject alternative names)."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return "no host name"
    names = [each.value for each in extension.value if isinstance(each, (x509.DNSName, x509.IPAddress))]
    return listed(names, 500) or "no host name"
