"""One connection to one broker, set up step by step as by ``NetworkClient``; each step is a ``Finding``."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import AuthenticationError, ConnectionStep, KafkaError, listed, sanitize
from spark_kafka_sink.network.api_versions import INIT_PRODUCER_ID, VersionRange, camel_case, every
from spark_kafka_sink.network.connection import ApiVersions, Connection, ConnectionState, Handshake
from spark_kafka_sink.network.diagnosis import advice, unmet
from spark_kafka_sink.network.handshake import ChannelBuilder
from spark_kafka_sink.network.login.sasl import LoginStep, username
from spark_kafka_sink.network.messages import API_KEYS, Bytes, KioRequest, MakeEntity, Response
from spark_kafka_sink.network.name_lookup import UNRESOLVED, Address, NameLookup, numeric_address
from spark_kafka_sink.network.security.tls import not_tls_error
from spark_kafka_sink.network.selector import Closed, Connected, Received, Selector
from spark_kafka_sink.tools.findings import Finding, Outcome

if TYPE_CHECKING:
    from spark_kafka_sink.network.security.tls import TlsLayer

# By kio's names.
_NAMED_APIS: Final = ("produce", "metadata", "init_producer_id")
_VERSIONS: Final = "versions"
_SETUP: Final = "socket.connection.setup.timeout.ms"


class BrokerConnection:
    """A connection that reports each step: ``establish`` it, then ``call``, then ``close``, on one thread.

    ``numbers`` numbers the connections of one transport. ``refused``: an authentication error ended it; another broker
    would refuse this client too.
    """

    def __init__(
        self,
        node: Node,
        config: ProducerConfig,
        channels: ChannelBuilder,
        transport: Selector,
        clock: Clock,
        numbers: Iterator[int],
    ) -> None:
        self.subject = f"{node.host}:{node.port}"
        self.refused = False
        self._node = node
        self._config = config
        self._channels = channels
        self._transport = transport
        self._clock = clock
        self._numbers = numbers
        self._number = -1
        self._responded_at = math.nan
        handshake = self._observe(channels.handshake(node))
        self._connection = Connection(-1, node, config, handshake, math.inf)
        self._tls: TlsLayer | None = None
        self._body: Any = None
        self._failed = False

    @property
    def is_ready(self) -> bool:
        return self._connection.state is ConnectionState.READY and not self._failed

    def establish(self) -> Iterator[Finding]:
        """The findings of each step; the last one has failed unless the connection ``is_ready``."""
        began = self._clock.now()
        try:
            for finding in self._steps():
                yield finding
                began = self._clock.now()
        except KafkaError as error:
            self._failed = True
            self.refused = isinstance(error, AuthenticationError)
            yield self._failure(error, self._clock.now() - began)
            self.close()

    def call(self, api: str, versions: VersionRange, make: MakeEntity) -> Any:
        """The response's body. Raises ``KafkaError``; then the connection must not be used again."""
        request = KioRequest(api, versions, make, _no_completion)
        self._body = None
        self._send(self._connection.send(request, self._clock.now()))
        try:
            while self._body is None:
                self._poll()
        except KafkaError:
            self._failed = True
            raise
        return self._body

    def close(self) -> None:
        """Closes the connection. A second call has no effect."""
        if self._number >= 0:
            self._send(self._connection.close())
            self._transport.close(self._number)
            self._number = -1

    # Steps

    def _steps(self) -> Iterator[Finding]:
        began = self._clock.now()
        addresses = self._resolve()
        texts = list(dict.fromkeys(map(_address_text, addresses)))
        resolved = self._clock.now()
        yield self._ok(ConnectionStep.DNS, ", ".join(texts), resolved - began)
        yield self._ok(ConnectionStep.TCP, self._connect(texts), self._clock.now() - resolved)
        yield from self._authenticate()
        yield self._versions()

    def _resolve(self) -> tuple[Address, ...]:
        host, port = self._node.host, self._node.port
        if known := numeric_address(host, port):
            return known
        timeout_ms = self._config.socket_connection_setup_timeout_ms
        deadline = self._clock.now() + timeout_ms
        lookup = NameLookup(host, port, self._transport.wakeup)
        while not lookup.done:
            if (now := self._clock.now()) >= deadline:
                raise self._connection.closed_error(f"{UNRESOLVED}: no response within {timeout_ms} ms ({_SETUP})")
            self._transport.poll(deadline - now)
        if lookup.error:
            raise self._connection.closed_error(f"{UNRESOLVED}: {lookup.error}")
        return lookup.addresses

    def _connect(self, addresses: list[str]) -> str:
        """Connects to the first address that accepts. The text names it, then says why the others did not."""
        reasons: list[str] = []
        for address in addresses:
            reason = self._try_address(address)
            if reason is None:
                connected = f"{address} port {self._node.port}"
                return "; ".join([connected, *(f"{reason}: it is skipped" for reason in reasons)])
            reasons.append(f"{address}: {reason}" if len(addresses) > 1 else reason)
        raise self._connection.closed_error(", ".join(reasons))

    def _try_address(self, address: str) -> str | None:
        """Returns why it cannot be connected."""
        timeout_ms = self._config.socket_connection_setup_timeout_ms
        deadline = self._clock.now() + timeout_ms
        self._connection.setup_deadline = deadline
        self._number = next(self._numbers)
        self._transport.connect(self._number, address, self._node.port)
        while (now := self._clock.now()) < deadline:
            for event in self._transport.poll(deadline - now):
                match event:
                    case Connected(self._number):
                        return None
                    case Closed(self._number, reason):
                        self._number = -1
                        return reason
        self._transport.close(self._number)
        self._number = -1
        return f"no response within {timeout_ms} ms ({_SETUP})"

    def _authenticate(self) -> Iterator[Finding]:
        """TLS, ApiVersions, SASL. An alert about the client's certificate may come as late as the first response; then
        a finding that TLS has failed follows the one that it is established."""
        connection, began = self._connection, self._clock.now()
        self._tls = self._channels.tls_layer(self._node)
        connection.connected(self._tls, began)
        self._send(connection.take_output())
        while connection.state is ConnectionState.TLS_HANDSHAKE:
            self._poll()
        established = self._clock.now()
        if self._tls is not None:
            version, cipher = self._tls.version_and_cipher()
            text = f"{version}, {cipher}\n{self._peer_text(self._tls)}"
            yield self._ok(ConnectionStep.TLS, text, established - began)
        while math.isnan(self._responded_at):
            self._poll()
        yield self._ok(ConnectionStep.KAFKA, "a Kafka broker responds", self._responded_at - established)
        while connection.state is not ConnectionState.READY:
            self._poll()
        if self._config.security_protocol.startswith("SASL_"):
            user = username(self._config)
            text = self._config.sasl_mechanism + (f" as {user}" if user is not None else "")
            yield self._ok(ConnectionStep.SASL, text, self._clock.now() - self._responded_at)

    def _versions(self) -> Finding:
        theirs = self._connection.api_versions
        assert theirs is not None
        if missing := list(unmet(self._config, theirs)):
            self._failed = True
            text = f"{'; '.join(missing)}. This sink needs the protocol of Kafka 2.1 or later"
            return Finding(self.subject, _VERSIONS, Outcome.FAILED, text)
        texts = [
            f"{camel_case(api)} v{theirs.pick(API_KEYS[api], *every(api))}"
            for api in _NAMED_APIS
            if theirs.speaks(API_KEYS[api], every(api))
        ]
        if not theirs.speaks(API_KEYS["init_producer_id"], INIT_PRODUCER_ID):
            texts.append("no InitProducerId: rows are written without idempotence")
        return Finding(self.subject, _VERSIONS, Outcome.OK, ", ".join(texts))

    def _observe(self, steps: Handshake) -> Handshake:
        """The same handshake, which also notes when ApiVersions is done."""
        request = next(steps)
        while True:
            response = yield request
            try:
                request = steps.send(response)
            except StopIteration as done:
                versions: ApiVersions = done.value
                if math.isnan(self._responded_at):
                    self._responded_at = self._clock.now()
                return versions
            is_login = isinstance(request, LoginStep) or request.__api_key__ != API_KEYS["api_versions"]
            if is_login and math.isnan(self._responded_at):
                self._responded_at = self._clock.now()

    # Texts

    def _ok(self, step: ConnectionStep, text: str, elapsed_ms: float) -> Finding:
        return Finding(self.subject, step.value, Outcome.OK, text, elapsed_ms)

    def _failure(self, error: KafkaError, elapsed_ms: float) -> Finding:
        failed = self._connection.failed_step(error)
        error.failed_step = failed
        step = ConnectionStep.KAFKA if failed is None else failed.step
        texts = [f"{error}", advice(error)]
        if step is ConnectionStep.TLS and self._tls is not None:
            texts.append(self._peer_text(self._tls))
        return Finding(self.subject, step.value, Outcome.FAILED, "\n".join(filter(None, texts)), elapsed_ms)

    def _peer_text(self, tls: TlsLayer) -> str:
        certificate = tls.peer_certificate()
        now = datetime.fromtimestamp(self._clock.epoch_ms() / 1000, UTC)
        return "" if certificate is None else certificate_text(certificate, now)

    # Bytes

    def _send(self, buffers: Sequence[Bytes]) -> None:
        if buffers:
            self._transport.send(self._number, buffers)

    def _poll(self) -> None:
        connection, now = self._connection, self._clock.now()
        deadline = connection.next_deadline(math.inf)
        if now >= deadline:
            timeout_ms = self._config.socket_connection_setup_timeout_ms
            late = f"no response within {timeout_ms} ms ({_SETUP})"
            raise connection.closed_error(late) if connection.in_setup else connection.timeout_error(now)
        if (step := connection.login_step) is not None:
            step.wake_when_done(self._transport)
        for event in self._transport.poll(deadline - now):
            match event:
                case Received(self._number, data):
                    self._received(data)
                case Closed(self._number, reason):
                    self._number = -1
                    error = self._plaintext_error() if connection.is_tls_unheard else None
                    raise error or connection.closed_error(reason)
        if connection.login_step is not None and connection.login_step.done:
            connection.login_step_done(self._clock.now())
            self._send(connection.take_output())

    def _plaintext_error(self) -> KafkaError | None:
        """The error if a Kafka broker responds at this address without TLS, which a write finds out, too."""
        plain = replace(self._config, security_protocol="PLAINTEXT", client_id="")
        channels = ChannelBuilder(plain)
        probe = BrokerConnection(self._node, plain, channels, self._transport, self._clock, self._numbers)
        deque(probe.establish(), 0)
        responds = probe.is_ready
        probe.close()
        return not_tls_error(self.subject) if responds else None

    def _received(self, data: bytes) -> None:
        for sent, body in self._connection.receive(data, self._clock.now()):
            self._body = sent.parse(body)
        self._send(self._connection.take_output())


def _no_completion(_response: Response) -> None:
    """``BrokerConnection`` has one request in flight, and takes its body itself."""


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
