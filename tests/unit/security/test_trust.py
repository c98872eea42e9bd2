"""Which brokers a truststore makes trusted: those that it does in Java, by Java's own verdict, unless the chain needs a
CA certificate outside its dates.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from spark_kafka_sink.network.security.tls import handshake_error
from spark_kafka_sink.network.security.tls_context import TlsContexts
from spark_kafka_sink.testing.java import find_java
from tests.unit.security.certificates import CLIENT, SERVER, Entity, Key, key_pem, pem, weak_key
from tests.unit.security.tls_peers import client_context, config, shake_hands

PASSWORD = "changeit"
PAST, FUTURE = (-60, -30), (30, 60)

ROOT, OTHER, WEAK = Entity("root"), Entity("other"), Entity("weak", weak_key())
INTERMEDIATE, BROKER, WEAK_BROKER = Entity("intermediate"), Entity("broker"), Entity("weak broker", weak_key())
ROOT_CA, INTERMEDIATE_CA = ROOT.certify_ca(ROOT), ROOT.certify_ca(INTERMEDIATE)
OTHER_CA = OTHER.certify_ca(OTHER)
BY_ROOT, BY_INTERMEDIATE = ROOT.certify(BROKER), INTERMEDIATE.certify(BROKER)
SELF_SIGNED = BROKER.certify(BROKER)
EXPIRED_ROOT = ROOT.certify_ca(ROOT, days=PAST)
EXPIRED_INTERMEDIATE = ROOT.certify_ca(INTERMEDIATE, days=PAST)
EXPIRED_ON = f"{EXPIRED_ROOT.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
VALID_FROM = f"{ROOT.certify_ca(ROOT, days=FUTURE).not_valid_before_utc:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True)
class Case:
    """A truststore, what a broker shows, and whether Java trusts it. ``refused``: the error here, if Java does."""

    trusted: bool
    store: x509.Certificate | tuple[x509.Certificate, ...]
    chain: tuple[x509.Certificate, ...]
    key: Key = BROKER.key
    refused: str = ""


CASES = {
    "root": Case(True, ROOT_CA, (BY_ROOT,)),
    "root, by an intermediate": Case(True, ROOT_CA, (BY_INTERMEDIATE, INTERMEDIATE_CA)),
    "only the intermediate": Case(True, INTERMEDIATE_CA, (BY_INTERMEDIATE, INTERMEDIATE_CA)),
    "only the intermediate, not shown": Case(True, INTERMEDIATE_CA, (BY_INTERMEDIATE,)),
    "only the broker": Case(True, BY_ROOT, (BY_ROOT,)),
    "only the broker, self-signed": Case(True, SELF_SIGNED, (SELF_SIGNED,)),
    "only the broker, which is a CA": Case(True, ROOT_CA, (ROOT_CA,), ROOT.key),
    "root without critical constraints": Case(True, ROOT.certify_ca(ROOT, critical=False), (BY_ROOT,)),
    "expired root": Case(
        True, EXPIRED_ROOT, (BY_ROOT,), refused=f"CA certificate CN=root expired on {EXPIRED_ON}"
    ),
    "expired root, shown": Case(
        True, EXPIRED_ROOT, (BY_ROOT, EXPIRED_ROOT), refused=f"CA certificate CN=root expired on {EXPIRED_ON}"
    ),
    "expired root, beside another root": Case(
        True, (OTHER_CA, EXPIRED_ROOT), (BY_ROOT,), refused=f"CA certificate CN=root expired on {EXPIRED_ON}"
    ),
    "root of the future": Case(
        True, ROOT.certify_ca(ROOT, days=FUTURE), (BY_ROOT,),
        refused=f"CA certificate CN=root is not valid before {VALID_FROM}",
    ),
    "expired intermediate": Case(
        True, EXPIRED_INTERMEDIATE, (BY_INTERMEDIATE,),
        refused=f"CA certificate CN=intermediate expired on {EXPIRED_ON}",
    ),
    "expired intermediate, in the truststore and shown": Case(
        True, EXPIRED_INTERMEDIATE, (BY_INTERMEDIATE, EXPIRED_INTERMEDIATE),
        refused=f"CA certificate CN=intermediate expired on {EXPIRED_ON}",
    ),
    "root, beside another that has expired": Case(
        True, (OTHER.certify_ca(OTHER, days=PAST), ROOT_CA), (BY_ROOT,)
    ),
    "renewed root, beside the expired one": Case(True, (EXPIRED_ROOT, ROOT_CA), (BY_ROOT,)),
    "root and an expired intermediate, the renewed one shown": Case(
        True, (EXPIRED_INTERMEDIATE, ROOT_CA), (BY_INTERMEDIATE, INTERMEDIATE_CA)
    ),
    "root for clients only": Case(True, ROOT.certify_ca(ROOT, purpose=CLIENT), (BY_ROOT,)),
    "root with a key of 1024 bits": Case(True, WEAK.certify_ca(WEAK), (WEAK.certify(BROKER),)),
    "broker with a key of 1024 bits": Case(True, ROOT_CA, (ROOT.certify(WEAK_BROKER),), WEAK_BROKER.key),
    "broker for servers": Case(True, ROOT_CA, (ROOT.certify(BROKER, purpose=SERVER),)),
    "broker for clients only": Case(False, ROOT_CA, (ROOT.certify(BROKER, purpose=CLIENT),)),
    "expired broker": Case(False, ROOT_CA, (ROOT.certify(BROKER, days=PAST),)),
    "broker of the future": Case(False, ROOT_CA, (ROOT.certify(BROKER, days=FUTURE),)),
    "expired intermediate, shown": Case(
        False, ROOT_CA, (BY_INTERMEDIATE, EXPIRED_INTERMEDIATE)
    ),
    "root that is no CA": Case(False, ROOT.certify_ca(ROOT, ca=False), (BY_ROOT,)),
    "another root": Case(False, OTHER_CA, (BY_ROOT,)),
    "another root of the same name": Case(False, (same := Entity("root")).certify_ca(same), (BY_ROOT, ROOT_CA)),
    "a broker's certificate as CA": Case(False, BY_ROOT, (BROKER.certify(WEAK_BROKER),), WEAK_BROKER.key),
}  # fmt: skip


def truststore(folder: Path, case: Case) -> Path:
    """As keytool writes it."""
    store = case.store if isinstance(case.store, tuple) else (case.store,)
    certificates = [pkcs12.PKCS12Certificate(each, f"ca{number}".encode()) for number, each in enumerate(store)]
    path = folder / "truststore.jks"
    path.write_bytes(pkcs12.serialize_java_truststore(certificates, BestAvailableEncryption(PASSWORD.encode())))
    return path


def server(folder: Path, case: Case) -> ssl.SSLContext:
    (folder / "broker.pem").write_bytes(key_pem(case.key) + pem(*case.chain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.load_cert_chain(folder / "broker.pem")
    return context


@pytest.mark.parametrize("name", CASES)
def test_a_truststore_makes_the_brokers_trusted_that_it_does_in_java(name, tmp_path):
    case = CASES[name]
    location = str(truststore(tmp_path, case))
    client = client_context(
        ssl_truststore_location=location, ssl_truststore_password=PASSWORD, ssl_endpoint_identification_algorithm=""
    )
    if case.trusted and not case.refused:
        assert shake_hands(client, server(tmp_path, case)).version == "TLSv1.3"
    else:
        with pytest.raises(ssl.SSLCertVerificationError) as raised:
            shake_hands(client, server(tmp_path, case))
        assert case.refused in str(handshake_error("broker:9093", raised.value))


@pytest.mark.parametrize(
    ("days", "said", "advice"),
    [
        (PAST, rf"expired on {EXPIRED_ON}\): give the broker a new certificate; if", "ssl.truststore.location"),
        (FUTURE, rf"is not valid before {VALID_FROM}\): check the clock of this machine", "another certificate"),
    ],
)  # fmt: skip
def test_the_error_names_a_certificate_outside_its_dates(days, said, advice, tmp_path):
    case = Case(False, ROOT_CA, (ROOT.certify(BROKER, days=days),))
    client = client_context(ssl_truststore_certificates=pem(ROOT_CA).decode(), ssl_truststore_type="PEM")
    with pytest.raises(ssl.SSLCertVerificationError) as raised:
        shake_hands(client, server(tmp_path, case))
    text = str(handshake_error("broker:9093", raised.value))
    assert re.match(rf"The certificate of broker:9093 is refused \(certificate CN=broker {said}", text)
    assert advice in text


def test_another_ca_of_the_same_name_that_has_expired_is_not_blamed(tmp_path):
    namesake = Entity("root")
    client = client_context(ssl_truststore_certificates=pem(namesake.certify_ca(namesake, days=PAST)).decode())
    with pytest.raises(ssl.SSLCertVerificationError) as raised:
        shake_hands(client, server(tmp_path, CASES["root"]))
    assert "unable to get local issuer certificate" in str(handshake_error("broker:9093", raised.value))


def test_a_ca_that_expires_while_the_producer_runs_is_named_by_the_next_connection(tmp_path, monkeypatch):
    contexts = TlsContexts(config(ssl_truststore_certificates=pem(ROOT_CA).decode()))
    before = contexts.context()
    shake_hands(before, server(tmp_path, CASES["root"]))
    assert contexts.context() is before
    monkeypatch.setattr(time, "time", lambda: ROOT_CA.not_valid_after_utc.timestamp() + 1)
    after = contexts.context()
    assert after is not before
    assert after.get_ca_certs() == []
    assert contexts.context() is after


@pytest.mark.jvm
def test_the_verdicts_are_javas(tmp_path):
    lines = []
    for number, case in enumerate(CASES.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "chain.pem").write_bytes(pem(*case.chain))
        lines.append(f"{truststore(folder, case)}\tPKCS12\t{PASSWORD}\t{folder / 'chain.pem'}\n")
    referee = [find_java(), str(Path(__file__).with_name("Referee.java"))]
    done = subprocess.run(referee, input="".join(lines), capture_output=True, check=True, text=True, timeout=120)
    verdicts = dict(zip(CASES, done.stdout.splitlines(), strict=True))
    assert {name: verdict == "trusted" for name, verdict in verdicts.items()} == {
        name: case.trusted for name, case in CASES.items()
    }, verdicts


def test_a_truststore_made_by_openssl_is_trusted_though_java_reads_it_as_empty(tmp_path):
    path = tmp_path / "truststore.p12"
    (tmp_path / "ca.pem").write_bytes(pem(ROOT_CA))
    command = ["openssl", "pkcs12", "-export", "-nokeys", "-in", str(tmp_path / "ca.pem"), "-out", str(path)]
    subprocess.run([*command, "-passout", f"pass:{PASSWORD}"], check=True)
    client = client_context(ssl_truststore_location=str(path), ssl_truststore_password=PASSWORD)
    assert shake_hands(client, server(tmp_path, CASES["root"])).version == "TLSv1.3"


def sha1_signed(folder: Path) -> tuple[x509.Certificate, Key]:
    """Of a broker. ``cryptography`` makes none."""
    (folder / "ca.pem").write_bytes(pem(ROOT_CA) + key_pem(ROOT.key))
    (folder / "broker.key").write_bytes(key_pem(BROKER.key))
    request = ["openssl", "req", "-new", "-key", "broker.key", "-subj", "/CN=broker", "-out", "broker.csr"]
    subprocess.run(request, check=True, cwd=folder)
    signed = ["openssl", "x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-set_serial", "2", "-sha1"]
    done = subprocess.run(signed, check=True, cwd=folder, capture_output=True)
    return x509.load_pem_x509_certificate(done.stdout), BROKER.key


def test_incident_a_certificate_signed_with_sha1_was_said_to_lack_its_issuer(tmp_path):
    certificate, key = sha1_signed(tmp_path)
    case = Case(False, ROOT_CA, (certificate,), key)
    client = client_context(
        ssl_truststore_location=str(truststore(tmp_path, case)), ssl_truststore_password=PASSWORD,
        ssl_endpoint_identification_algorithm="",
    )  # fmt: skip
    with pytest.raises(ssl.SSLCertVerificationError) as raised:
        shake_hands(client, server(tmp_path, case))
    text = str(handshake_error("broker:9093", raised.value))
    assert text.startswith("The certificate of broker:9093 is refused (CA signature digest algorithm too weak): it, or")
    assert "is signed with SHA-1 or MD5" in text
    assert "no option allows: have that certificate issued anew with SHA-256" in text
    assert "ssl.truststore" not in text
