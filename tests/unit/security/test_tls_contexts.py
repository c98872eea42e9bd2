"""The context of a connection: what it trusts, which key it has, and when it is made anew."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import subprocess
import tempfile

import pytest
import trustme

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.security.tls_context import TlsContexts
from tests.unit.security.tls_peers import HOST, client_context, config, shake_hands


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(ca) -> ssl.SSLContext:
    """Wants a client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(HOST).configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def keystore(certificate: trustme.LeafCert) -> bytes:
    return certificate.private_key_and_cert_chain_pem.bytes()


def der(certificate: trustme.LeafCert) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.cert_chain_pems[0].bytes().decode())


@pytest.fixture
def truststore(ca, tmp_path) -> str:
    path = tmp_path / "ca.pem"
    path.write_bytes(ca.cert_pem.bytes())
    return str(path)


def test_a_truststore_and_a_keystore_of_pem_files_make_mutual_tls(ca, server, truststore, tmp_path):
    client = ca.issue_cert("client")
    (tmp_path / "client.pem").write_bytes(keystore(client))
    context = client_context(ssl_truststore_location=truststore, ssl_keystore_location=str(tmp_path / "client.pem"))
    assert shake_hands(context, server).client_certificate == der(client)


def test_no_plain_key_is_on_disk_while_it_is_loaded_and_no_file_is_left(ca, truststore, tmp_path, monkeypatch):
    (tmp_path / "client.pem").write_bytes(keystore(ca.issue_cert("client")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    os.mkdir(tempfile.gettempdir())
    seen = []
    load = ssl.SSLContext.load_cert_chain

    def looking(self, path, *arguments, **options):
        with open(path) as file:
            seen.append((stat.S_IMODE(os.stat(path).st_mode), file.read()))
        load(self, path, *arguments, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", looking)
    client_context(ssl_truststore_location=truststore, ssl_keystore_location=str(tmp_path / "client.pem"))
    ((mode, text),) = seen
    assert mode == 0o600
    assert "-----BEGIN ENCRYPTED PRIVATE KEY-----" in text
    assert text.count("PRIVATE KEY") == 2
    assert os.listdir(tempfile.gettempdir()) == []


def test_the_temporary_file_is_removed_when_the_key_is_refused(ca, truststore, tmp_path, monkeypatch):
    one, other = ca.issue_cert("one"), ca.issue_cert("other")
    (tmp_path / "client.pem").write_bytes(one.private_key_pem.bytes() + other.cert_chain_pems[0].bytes())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    os.mkdir(tempfile.gettempdir())
    with pytest.raises(ConfigError, match=r"client.pem: the private key does not belong to the first certificate\.$"):
        client_context(ssl_truststore_location=truststore, ssl_keystore_location=str(tmp_path / "client.pem"))
    assert os.listdir(tempfile.gettempdir()) == []


def test_an_unchanged_file_keeps_its_context_and_a_renewed_one_is_used(ca, server, truststore, tmp_path):
    path = tmp_path / "client.pem"
    first, renewed = ca.issue_cert("client"), ca.issue_cert("client")
    path.write_bytes(keystore(first))
    contexts = TlsContexts(config(ssl_truststore_location=truststore, ssl_keystore_location=str(path)))
    before = contexts.context()
    os.utime(path, (1, 1))
    assert contexts.context() is before
    times = path.stat().st_atime, path.stat().st_mtime
    path.write_bytes(keystore(renewed))
    os.utime(path, times)
    assert shake_hands(contexts.context(), server).client_certificate == der(renewed)


@pytest.mark.parametrize("half", ["cut", "cut in its chain", "missing", "mixed"])
def test_a_half_written_keystore_keeps_the_old_context_with_one_warning(half, ca, server, truststore, tmp_path, caplog):
    path = tmp_path / "client.pem"
    first, renewed = ca.issue_cert("client"), ca.issue_cert("client")
    path.write_bytes(keystore(first))
    contexts = TlsContexts(config(ssl_truststore_location=truststore, ssl_keystore_location=str(path)))
    before = contexts.context()
    if half == "missing":
        path.unlink()
    elif half == "cut":
        path.write_bytes(keystore(renewed)[:-200])
    elif half == "cut in its chain":
        path.write_bytes(keystore(renewed) + ca.cert_pem.bytes()[:-200])
    else:
        path.write_bytes(renewed.private_key_pem.bytes() + first.cert_chain_pems[0].bytes())
    with caplog.at_level(logging.WARNING):
        assert [contexts.context() for _ in range(3)] == [before] * 3
    (record,) = caplog.records
    assert f"ssl.keystore.location {path}" in record.getMessage()
    path.write_bytes(keystore(renewed))
    assert shake_hands(contexts.context(), server).client_certificate == der(renewed)
    path.unlink()
    with caplog.at_level(logging.WARNING):
        contexts.context()
    assert len(caplog.records) == 2, "the next failure warns again"


def test_no_truststore_means_the_systems(server, truststore, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", truststore)
    assert shake_hands(client_context(), server).version == "TLSv1.3"


def test_a_system_without_certificates_is_an_error_that_names_the_option(tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"^ssl.truststore.location is not given, and this system has no trusted"):
        client_context()


def test_a_folder_of_the_systems_certificates_is_trusted(ca, server, tmp_path, monkeypatch):
    """OpenSSL reads it when it looks a certificate up; its names are hashes of the subject."""
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem.bytes())
    command = ["openssl", "x509", "-hash", "-noout", "-in", str(tmp_path / "ca.pem")]
    name = subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    (tmp_path / "ca.pem").rename(tmp_path / f"{name}.0")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert shake_hands(client_context(), server).version == "TLSv1.3"


def test_renegotiation_compression_and_old_versions_are_off(truststore):
    context = client_context(ssl_truststore_location=truststore)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


def test_a_version_that_the_options_leave_out_is_not_spoken(ca, truststore):
    older = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    ca.issue_cert(HOST).configure_cert(older)
    assert shake_hands(client_context(ssl_truststore_location=truststore), older).version == "TLSv1.2"
    newer = client_context(ssl_truststore_location=truststore, ssl_enabled_protocols="TLSv1.3")
    with pytest.raises(ssl.SSLError):
        shake_hands(newer, older)


def test_a_new_connection_has_the_keystore_that_the_config_provider_has_by_then(ca, server, truststore, tmp_path):
    clients = [ca.issue_cert("first"), ca.issue_cert("second")]
    write_pair(tmp_path, clients[0])
    pair = {"ssl_keystore_key": "key", "ssl_keystore_certificate_chain": "chain"}
    placeholders = {option: f"${{dir:{tmp_path}:{file}}}" for option, file in pair.items()}
    contexts = TlsContexts(config(ssl_truststore_location=truststore, **placeholders))
    assert contexts.context() is contexts.context()
    assert shake_hands(contexts.context(), server).client_certificate == der(clients[0])
    write_pair(tmp_path, clients[1])
    assert shake_hands(contexts.context(), server).client_certificate == der(clients[1])


def write_pair(folder, certificate: trustme.LeafCert) -> None:
    (folder / "key").write_bytes(certificate.private_key_pem.bytes())
    (folder / "chain").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))


@pytest.mark.parametrize("restricted", [(), ("-pkeyopt", "rsa_pss_keygen_md:sha256")], ids=["any hash", "SHA-256"])
def test_incident_a_keystore_with_a_key_of_rsassa_pss_had_no_certificate(restricted, tmp_path):
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, cwd=tmp_path, capture_output=True)

    openssl("genpkey", "-algorithm", "RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048", *restricted, "-out", "key.pem")
    openssl("req", "-new", "-x509", "-key", "key.pem", "-subj", "/CN=me", "-out", "me.pem")
    openssl("pkcs12", "-export", "-inkey", "key.pem", "-in", "me.pem", "-passout", "pass:secret", "-out", "me.p12")
    (tmp_path / "both.pem").write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "me.pem").read_bytes())
    for file, password in (("me.p12", {"ssl_keystore_password": "secret"}), ("both.pem", {})):
        location = str(tmp_path / file)
        with pytest.raises(ConfigError) as raised:
            client_context(ssl_keystore_location=location, **password)
        assert str(raised.value).startswith(
            f"ssl.keystore.location {location}: its private key is of the kind RSASSA-PSS, which cannot be used here: "
        )
