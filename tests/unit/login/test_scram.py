"""SCRAM by the RFCs' examples, against a server written from the RFC, and against servers that lie."""

import pytest

from spark_kafka_sink.errors import SaslAuthenticationError
from spark_kafka_sink.network.login.passwords import Credentials, scram_exchange
from tests.unit.login.scram_server import Refused, serve

ALGORITHMS = ("sha256", "sha512")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def begin(server_first=SERVER_FIRST, password="pencil"):
    exchange = scram_exchange("sha256", Credentials("user", password), NONCE)
    next(exchange)
    return exchange, exchange.send(server_first)


def end(exchange, message):
    with pytest.raises(StopIteration):
        exchange.send(message)


def log_in(algorithm, credentials, users, **server_options):
    """Client and server to the end; returns the client's first message."""
    server, client = serve(algorithm, users, **server_options), scram_exchange(algorithm, credentials, NONCE)
    next(server)
    first = next(client)
    final = client.send(server.send(first))
    end(client, server.send(final))
    return first


def test_the_messages_are_those_of_rfc_7677():
    exchange = scram_exchange("sha256", Credentials("user", "pencil"), NONCE)
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    end(exchange, SERVER_FINAL)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("password", ["pencil", "pässwörd€🔑", "\u00adsoft\u2168", " ", "a,b=c"])
def test_the_server_accepts_the_password_and_proves_that_it_knows_it(algorithm, password):
    log_in(algorithm, Credentials("user", password), {"user": password})


@pytest.mark.parametrize(("user", "sent"), [("a,b=c", b"n=a=2Cb=3Dc"), ("=2C", b"n==3D2C"), ("é", "n=é".encode())])
def test_commas_and_equal_signs_of_a_user_are_escaped(user, sent):
    first = log_in("sha256", Credentials(user, "p"), {user: "p"})
    assert first == b"n,," + sent + b",r=" + NONCE.encode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_normalised_password_is_another_one(algorithm):
    with pytest.raises(Refused):  # SASLprep would make both the same
        log_in(algorithm, Credentials("user", "\u2168"), {"user": "IX"})


def test_a_delegation_token_is_named_as_such():
    assert log_in("sha256", Credentials("id", "hmac", True), {"id": "hmac"}).endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (SERVER_FIRST.replace(b"rOpr", b"xxxx"), "does not continue the client's"),
        (b"r=" + NONCE.encode() + b",s=QQ==,i=4096", "does not continue the client's"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "asks for 4095 SCRAM iterations; 4096 to 1000000 are accepted"),
        (SERVER_FIRST.replace(b"4096", b"1000001"), "asks for 1000001 SCRAM iterations"),
        (SERVER_FIRST.replace(b"4096", b"9" * 5000), "asks for 99999999999999999999 SCRAM iterations"),
        (SERVER_FIRST.replace(b"4096", b"-1"), "asks for -1 SCRAM iterations"),
        (SERVER_FIRST.replace(b"W22Z", b"W2!Z"), "not SCRAM's"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "not SCRAM's"),
        (b"m=must," + SERVER_FIRST, "not SCRAM's"),
        (b"", "not SCRAM's"),
        (b"\xff\xfe", "not SCRAM's"),
    ],
)  # fmt: skip
def test_a_first_message_that_lies_is_refused_before_anything_is_hashed(message, reason, monkeypatch):
    monkeypatch.setattr("hashlib.pbkdf2_hmac", None)
    with pytest.raises(SaslAuthenticationError, match=reason):
        begin(message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"v=AAAA", "signature is wrong"),
        (SERVER_FINAL.replace(b"6rri", b"7rri"), "signature is wrong"),
        (b"e=invalid-proof", "the error 'invalid-proof'"),
        (b"v=", "not SCRAM's"),
        (b"", "not SCRAM's"),
        (b"v=\xff", "not SCRAM's"),
    ],
)
def test_a_server_that_does_not_know_the_password_is_refused(message, reason):
    exchange, _final = begin()
    with pytest.raises(SaslAuthenticationError, match=reason):
        exchange.send(message)


def test_a_nonce_is_never_used_twice():
    from spark_kafka_sink.common.config import ProducerConfig
    from spark_kafka_sink.network.login.sasl import sasl_mechanism

    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = ProducerConfig.parse(
        {
            "bootstrap.servers": "b:9092",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{module} required username="a" password="p";',
        }
    )
    mechanism = sasl_mechanism(config)
    firsts = {next(mechanism.exchange("b")) for _ in range(100)}
    assert len(firsts) == 100
    assert all(first.startswith(b"n,,n=a,r=") and len(first) >= 9 + 24 for first in firsts)
