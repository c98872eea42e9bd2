"""A truststore with a CA certificate that has expired: over TLS connections of a producer, and over HTTPS."""

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.login.http import HttpExchangeError, HttpLimits, HttpRequest, TimeoutOption, exchange
from spark_kafka_sink.network.security.tls_context import TlsContexts
from spark_kafka_sink.testing import TestBroker
from tests.support.waiting import DEADLINE_S

OTHER = trustme.CA(organization_name="Other")
EXPIRED_ON = datetime(2024, 5, 6, 7, 8, tzinfo=UTC)
LIMITS = HttpLimits(TimeoutOption("connect", 10_000.0), TimeoutOption("read", 10_000.0), 10_000.0, "trust", 1000)


def pem(ca):
    return ca.cert_pem.bytes().decode()


def expired(ca):
    """The CA's certificate as it was before it was renewed: same name and key."""
    now = x509.load_pem_x509_certificate(ca.cert_pem.bytes())
    builder = x509.CertificateBuilder(now.issuer, now.subject, now.public_key(), now.serial_number + 1)
    builder = builder.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(EXPIRED_ON)
    for extension in now.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(load_pem_private_key(ca.private_key_pem.bytes(), None), hashes.SHA256())
    return signed.public_bytes(Encoding.PEM).decode()


@pytest.fixture(scope="module")
def broker():
    with TestBroker(listeners={"TLS": "SSL"}) as broker:
        broker.create_topic("t")
        yield broker


def write(broker, truststore):
    options = {**broker.client_options("TLS"), "ssl.truststore.certificates": truststore, "max.block.ms": "2000"}
    with KafkaProducer(options) as producer:
        return producer.send(ProducerRecord("t", b"x", partition=0)).result(DEADLINE_S)


def test_beside_the_good_one_it_changes_nothing(broker):
    ca = broker._authority._ca
    assert write(broker, expired(OTHER) + pem(ca)).topic == "t"
    assert write(broker, expired(ca) + pem(ca)).topic == "t"


@pytest.mark.parametrize("beside", ["", pem(OTHER)], ids=["alone", "beside another CA"])
def test_a_chain_that_needs_it_is_refused_with_its_subject_and_date(broker, beside):
    with pytest.raises(KafkaError) as raised:
        write(broker, expired(broker._authority._ca) + beside)
    text = str(raised.value)
    assert f"The certificate of {broker.servers('TLS')} is refused (CA certificate " in text
    assert ",O=trustme v" in text
    assert " expired on 2024-05-06 07:08 UTC): give the broker a new certificate; if that of a CA has expired, " in text
    assert "put the CA's new one into ssl.truststore.location or ssl.truststore.certificates" in text


def test_so_it_is_for_a_server_that_speaks_https():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    OTHER.issue_cert("localhost").configure_cert(context)
    server = HTTPServer(("localhost", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=True)

    def refuse():
        with suppress(OSError):
            server.get_request()

    answering = Thread(target=refuse)
    answering.start()
    options = {"bootstrap.servers": "b:1", "security.protocol": "SSL", "ssl.truststore.certificates": expired(OTHER)}
    request = HttpRequest("GET", f"https://localhost:{server.server_port}/", {}, None)
    try:
        with pytest.raises(HttpExchangeError, match=r"CA certificate .*O=Other expired on 2024-05-06 07:08 UTC"):
            exchange(request, TlsContexts(ProducerConfig.parse(options)).context(), LIMITS, SystemClock())
    finally:
        answering.join(DEADLINE_S)
        server.server_close()
