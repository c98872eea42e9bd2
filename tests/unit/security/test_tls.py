"""``TlsLayer`` against the server side of ``ssl``, in memory."""

from __future__ import annotations

import ssl
import tracemalloc
from contextlib import suppress
from itertools import cycle
from random import randbytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import NetworkError, SslAuthenticationError, WrongProtocolError
from spark_kafka_sink.network.security.tls import TlsLayer
from tests.unit.security.conftest import HOST, Certificates, Pair

RECORD = 16 * 1024
CERTIFICATES = Certificates()


def records(ciphertext: bytes) -> list[int]:
    """The sizes of the TLS records in ``ciphertext``."""
    sizes, at = [], 0
    while at < len(ciphertext):
        sizes.append(int.from_bytes(ciphertext[at + 3 : at + 5], "big"))
        at += 5 + sizes[-1]
    return sizes


@pytest.fixture
def pair(certificates, version) -> Pair:
    client = certificates.client_context()
    client.maximum_version = version
    return Pair(client, certificates.server_context()).connect()


def test_small_buffers_share_a_record_and_large_ones_are_not_joined(pair):
    pair.layer.write([b"0123456789"] * 5)
    small = pair.layer.take_output()
    assert len(records(small)) == 1
    large = memoryview(bytes(3 * RECORD))
    pair.layer.write((b"size", b"header", large, b"tail"))
    assert len(records(pair.layer.take_output())) == 1 + 3 + 1
    pair.server.receive(small)


@given(
    cuts=st.lists(st.one_of(st.integers(1, 8), st.integers(1, 70_000)), min_size=1, max_size=20),
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=4),
)
def test_bytes_may_be_cut_anywhere(cuts, sizes):
    pair = Pair(CERTIFICATES.client_context(), CERTIFICATES.server_context())
    lengths = cycle(cuts)

    def cut(received: bytes):
        while received:
            size = next(lengths)
            yield received[:size]
            received = received[size:]

    pair.cut = cut
    pair.connect()
    sent = [randbytes(size) for size in sizes]
    for message in sent:
        pair.layer.write((message,))
        pair.server.write(message)
    pair.exchange()
    assert pair.at_server == pair.at_client == b"".join(sent)


def test_an_untrusted_certificate_names_the_truststore_and_the_server_gets_an_alert(certificates, other_ca, version):
    client = certificates.client_context(trusted=other_ca)
    client.maximum_version = version
    pair = Pair(client, certificates.server_context())
    with pytest.raises(SslAuthenticationError, match=rf"(?s){HOST}:9093.*ssl\.truststore\.location"):
        pair.connect()
    pair.server.receive(pair.layer.take_output())
    assert pair.server.error.reason == "TLSV1_ALERT_UNKNOWN_CA"


@pytest.mark.parametrize("host", ["127.0.0.1", f"{HOST}.", HOST.upper()])
def test_other_ways_to_write_the_host_are_checked_too(certificates, host):
    assert Pair(certificates.client_context(), certificates.server_context(), host=host).connect().layer.established


def test_the_zone_of_an_ipv6_address_is_not_part_of_the_name(certificates):
    server = certificates.server_context(certificates.ca.issue_cert("fe80::1"))
    assert Pair(certificates.client_context(), server, host="fe80::1%eth0").connect().layer.established


def test_no_common_version_names_the_option(certificates):
    client, server = certificates.client_context(), certificates.server_context()
    client.maximum_version, server.minimum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    with pytest.raises(SslAuthenticationError, match=r"ssl\.enabled\.protocols"):
        Pair(client, server).connect()


def test_no_common_cipher_names_the_option(certificates):
    client, server = certificates.client_context(), certificates.server_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers("ECDHE+AES128")
    server.set_ciphers("ECDHE+AES256")
    with pytest.raises(SslAuthenticationError, match=r"ssl\.cipher\.suites"):
        Pair(client, server).connect()


def test_an_alert_after_the_first_response_is_a_lost_connection(pair):
    pair.server.write(b"response")
    pair.exchange()
    pair.server.write(b"next")
    # The last is OpenSSL's own text from 3.5 on.
    with pytest.raises(NetworkError, match=r"broker\.example:9093 was lost: .*(mac|decryption|record layer failure)"):
        list(pair.layer.receive(corrupted(pair.server.take_output())))
    pair.server.receive(pair.layer.take_output())
    assert "BAD_RECORD_MAC" in pair.server.error.reason


def corrupted(record: bytes) -> bytes:
    return record[:-1] + bytes([record[-1] ^ 1])


def test_the_close_of_the_peer_comes_after_its_bytes(pair):
    pair.server.write(b"last")
    pair.server.close()
    pair.exchange()
    assert pair.at_client == b"last"
    assert pair.layer.closed_by_peer


def test_close_tells_the_peer(pair):
    pair.layer.close()
    alert = pair.layer.take_output()
    assert alert
    pair.server.receive(alert)
    assert pair.server.error is None
    assert pair.server.tls.read(1) == b""


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b"\x00\x00\x00\x10", b"S"])
def test_a_server_without_tls_names_the_protocol(certificates, data):
    layer = TlsLayer(certificates.client_context(), HOST, 9093)
    layer.shake_hands()
    with pytest.raises(WrongProtocolError, match=r"responded without TLS.*security\.protocol=PLAINTEXT"):
        list(layer.receive(data))


@given(st.binary(min_size=1, max_size=2_000).map(lambda noise: b"\x16" + noise))
def test_noise_in_the_handshake_is_an_error_or_is_waited_for(noise):
    layer = TlsLayer(CERTIFICATES.client_context(), HOST, 9093)
    layer.shake_hands()
    with suppress(SslAuthenticationError):
        assert list(layer.receive(noise)) == []


def test_records_that_never_end_do_not_grow_memory(pair):
    """A record of the largest size whose end does not come; then the rest of many."""
    pair.server.write(bytes(100 * RECORD))
    stream = pair.server.take_output()
    read = 0
    tracemalloc.start()
    for start in range(0, len(stream), 1000):
        read += sum(map(len, pair.layer.receive(stream[start : start + 1000])))
    _current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read == 100 * RECORD
    assert peak < 200_000
