"""Bent TLS records, SASL messages, settings and certificate files: the errors of this package, soon, and no others."""

from __future__ import annotations

import base64
import ssl
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.jaas import JaasError, parse_jaas
from spark_kafka_sink.errors import ConfigError, KafkaError, SaslAuthenticationError
from spark_kafka_sink.network.handshake import authenticate
from spark_kafka_sink.network.login.credentials import Credentials
from spark_kafka_sink.network.login.sasl import sasl_mechanism
from spark_kafka_sink.network.login.scram import scram_exchange
from spark_kafka_sink.network.messages import API_KEYS, schema
from spark_kafka_sink.network.security.tls_context import TlsContexts
from spark_kafka_sink.testing.scripted_network import api_versions_response, response_frame
from tests.properties.bends import BENDS, Bend, bent, each_cut_and_flip
from tests.unit.login.scram_server import Refused, serve
from tests.unit.network.test_sasl_handshake import RANGES, authenticated, shaken
from tests.unit.security.certificates import key_pem, pem
from tests.unit.security.conftest import HOST, Certificates, Pair
from tests.unit.security.test_stores import CA_CERTIFICATE, CHAIN, CLIENT, PEM, SECRET, jks, p12

CERTIFICATES = Certificates()
CLIENT_CONTEXT = CERTIFICATES.client_context()
VERSIONS = {version: CERTIFICATES.server_context() for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)}
for version, context in VERSIONS.items():
    context.maximum_version = version
MESSAGE = b"response " * 3000
MEMORY = 4 << 20
MOST_STEPS = 20


class BentPair(Pair):
    """The server's bytes, one flight after the other, are bent."""

    def __init__(self, version: ssl.TLSVersion, bends: list[Bend | None]) -> None:
        super().__init__(CLIENT_CONTEXT, VERSIONS[version], HOST)
        self._bends = iter(bends)
        self.cut = self._bent

    def _bent(self, data: bytes) -> Iterator[bytes]:
        bend = next(self._bends, None) if data else None
        changed = data if bend is None else bent(data, bend)
        if changed:
            yield changed


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_unbent_records_bring_the_message(version: ssl.TLSVersion) -> None:
    pair = BentPair(version, []).connect()
    pair.server.write(MESSAGE)
    pair.exchange()
    assert pair.at_client == MESSAGE


@settings(max_examples=100)
@given(st.sampled_from(list(VERSIONS)), st.lists(st.none() | BENDS, min_size=1, max_size=4))
def test_bent_tls_records_are_an_error_or_waited_for(version: ssl.TLSVersion, bends: list[Bend | None]) -> None:
    pair = BentPair(version, bends)
    with suppress(KafkaError):
        pair.connect()
        if pair.server.established:
            pair.server.write(MESSAGE)
        pair.exchange()
    assert MESSAGE.startswith(pair.at_client), "bytes that the server did not send"


ALICE = Credentials("alice", SECRET)


def configured(mechanism: str) -> ProducerConfig:
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{SECRET}";'
    return ProducerConfig.parse({
        "bootstrap.servers": "b:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
    })  # fmt: skip


def converse(mechanism: str, bends: dict[int, Bend | bytes]) -> None:
    """ApiVersions and SASL with an honest broker, whose responses are bent or replaced by their number."""
    config = configured(mechanism)
    handshake = authenticate("b:9092 (id: 1)", "b", config, sasl_mechanism(config))
    server = serve("sha256", {"alice": SECRET})
    next(server)
    request = next(handshake)
    for number in range(MOST_STEPS):
        bend = bends.get(number)
        body = honest(request, server, mechanism)
        changed = body if bend is None else bend if isinstance(bend, bytes) else bent(body, bend)
        try:
            request = handshake.send(memoryview(changed))
        except StopIteration:
            return
    raise AssertionError("the handshake does not end")


def honest(request, server: Generator[bytes, bytes, None], mechanism: str) -> bytes:
    """The response's body, from the bytes after the correlation id."""
    api, version = request.__api_key__, request.__version__
    if api == API_KEYS["api_versions"]:
        asked = SimpleNamespace(module=schema("api_versions", version), version=version)
        return response_frame(0, api_versions_response(asked, RANGES))[8:]
    if api == API_KEYS["sasl_handshake"]:
        return bytes(shaken(mechanisms=(mechanism,)))
    if mechanism == "PLAIN":
        return bytes(authenticated(lifetime_ms=1000))
    try:
        return bytes(authenticated(server.send(request.auth_bytes)))
    except (AssertionError, Refused, StopIteration):
        return bytes(authenticated(code=ErrorCode.sasl_authentication_failed))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_an_unbent_handshake_succeeds(mechanism: str) -> None:
    converse(mechanism, {})


@settings(max_examples=60)
@given(st.sampled_from(["PLAIN", "SCRAM-SHA-256"]), st.dictionaries(st.integers(0, 4), BENDS, min_size=1, max_size=3))
def test_bent_responses_of_the_handshake_end_it(mechanism: str, bends: dict[int, Bend | bytes]) -> None:
    with suppress(KafkaError):
        converse(mechanism, bends)


def test_no_cut_and_no_flipped_bit_of_the_handshake_s_responses_raises_another_error() -> None:
    config = configured("PLAIN")
    handshake = authenticate("b:9092 (id: 1)", "b", config, sasl_mechanism(config))
    request = next(handshake)
    server = serve("sha256", {})
    for number in range(3):
        body = honest(request, server, "PLAIN")
        for changed in each_cut_and_flip(body):
            with suppress(KafkaError):
                converse("PLAIN", {number: changed})
        with suppress(StopIteration):
            request = handshake.send(memoryview(body))


@cache
def scram_messages() -> tuple[bytes, bytes]:
    """server-first and server-final of an honest server, for the nonce ``nonce``."""
    server = serve("sha256", {"alice": SECRET})
    next(server)
    exchange = scram_exchange("sha256", ALICE, "nonce")
    first = server.send(next(exchange))
    return first, server.send(exchange.send(first))


def log_in(first: bytes, final: bytes) -> None:
    exchange = scram_exchange("sha256", ALICE, "nonce")
    next(exchange)
    exchange.send(first)
    with pytest.raises(StopIteration):
        exchange.send(final)


def test_no_cut_and_no_flipped_bit_of_the_servers_scram_messages_is_accepted() -> None:
    first, final = scram_messages()
    log_in(first, final)
    cases = [(changed, final) for changed in each_cut_and_flip(first)]
    # The last character of Base64 has bits that mean nothing.
    cases += [(first, changed) for changed in each_cut_and_flip(final) if not same_signature(changed, final)]
    for case in cases:
        with pytest.raises(SaslAuthenticationError) as raised:
            log_in(*case)
        assert SECRET not in str(raised.value)


def same_signature(changed: bytes, final: bytes) -> bool:
    with suppress(ValueError):
        return changed[:2] == final[:2] and base64.b64decode(changed[2:], validate=True) == base64.b64decode(final[2:])
    return False


@given(st.binary(max_size=100) | st.text("rsie=v,nonce1234567890+/", max_size=60).map(str.encode), st.binary())
def test_no_message_of_a_scram_server_raises_another_error(first: bytes, final: bytes) -> None:
    with pytest.raises(SaslAuthenticationError):
        log_in(first, final)


@given(st.text(max_size=200) | st.text("org.aA required=;\"'\\/*\n0789-_$é", max_size=80))
def test_no_text_of_a_login_module_raises_another_error(text: str) -> None:
    with suppress(JaasError):
        parse_jaas(text)


LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'


@given(st.lists(BENDS, min_size=1, max_size=3))
def test_a_bent_login_module_is_a_config_error_that_does_not_show_the_password(bends: list[Bend]) -> None:
    text = LOGIN
    for bend in bends:
        text = bent(text.encode(), bend).decode(errors="replace")
    options = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    assert SECRET not in fault(ProducerConfig.parse, {**options, "sasl.jaas.config": text})


def fault(run: Callable[..., object], *arguments: object) -> str:
    """The text of the ConfigError that ``run`` raises, "" if it raises none."""
    try:
        run(*arguments)
    except ConfigError as error:
        return str(error)
    return ""


def test_a_long_login_module_takes_time_by_its_length_only() -> None:
    for text in ("a" * 100_000, "/*" * 50_000, '"' * 100_000, "x required " + "a=b " * 25_000, "1." * 50_000):
        with suppress(JaasError):
            parse_jaas(text)


STORES = {
    "PEM": (PEM.encode(), pem(*CHAIN) + key_pem(CLIENT.key)),
    "PKCS12": (p12(key=None, certificate=None, others=[CA_CERTIFICATE]), p12()),
    "JKS": (jks(CA_CERTIFICATE), jks(CA_CERTIFICATE)),
}


def contexts(folder: Path, truststore: bytes, keystore: bytes | None, password: bool) -> None:
    """Both stores, as a client loads them."""
    options = {"bootstrap.servers": "b:1", "security.protocol": "SSL"}
    for store, content in (("truststore", truststore), ("keystore", keystore)):
        if content is not None:
            (folder / store).write_bytes(content)
            options[f"ssl.{store}.location"] = str(folder / store)
            options |= {f"ssl.{store}.password": SECRET} if password else {}
    TlsContexts(ProducerConfig.parse(options))


@settings(max_examples=100)
@given(st.sampled_from(list(STORES)), st.booleans(), st.booleans(), st.lists(BENDS, min_size=1, max_size=3))
def test_bent_stores_are_config_errors_that_do_not_show_the_password(
    kind: str, of_key: bool, password: bool, bends: list[Bend]
) -> None:
    truststore, keystore = STORES[kind]
    for bend in bends:
        truststore, keystore = (truststore, bent(keystore, bend)) if of_key else (bent(truststore, bend), keystore)
    trusted = PEM.encode() if of_key else truststore
    with TemporaryDirectory() as folder:
        assert SECRET not in fault(contexts, Path(folder), trusted, keystore if of_key else None, password)


def test_a_length_in_a_store_takes_no_memory() -> None:
    """JKS and DER announce up to 4 GiB."""
    claims = [
        bytes.fromhex("feedfeed000000027fffffff0000000200017800000000000000000005582e3530397fffffff") + bytes(20),
        bytes.fromhex("3084ffffffff020103"),
    ]
    tracemalloc.start()
    with TemporaryDirectory() as folder:
        for content in claims:
            with pytest.raises(ConfigError):
                contexts(Path(folder), content, None, False)
    _current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY
