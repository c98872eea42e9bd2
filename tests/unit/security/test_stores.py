"""Truststores and keystores in every form that users have, and what the error says for the others."""

from __future__ import annotations

import hashlib
import subprocess

import pytest
from asn1crypto import core
from asn1crypto import pkcs12 as asn1
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.security.stores import key_pair, read_files, trusted_certificates
from spark_kafka_sink.testing.java import find_java
from tests.support.waiting import DEADLINE_S
from tests.unit.security.certificates import Entity, key_pem, pem
from tests.unit.security.tls_peers import config

SECRET = "hunter2-päss"
CA, INTERMEDIATE, CLIENT = Entity("ca"), Entity("intermediate"), Entity("client")
CA_CERTIFICATE, INTERMEDIATE_CERTIFICATE = CA.certify_ca(CA), CA.certify_ca(INTERMEDIATE)
CERTIFICATE = INTERMEDIATE.certify(CLIENT)
CHAIN = (CERTIFICATE, INTERMEDIATE_CERTIFICATE)


def der(*certificates):
    return [each.public_bytes(Encoding.DER) for each in certificates]


def trusted(path=None, content=None, **options):
    if path is not None:
        path.write_bytes(content)
        options["ssl_truststore_location"] = str(path)
    given = config(**options)
    return trusted_certificates(given, read_files(given)[0])


def pair(path=None, content=None, **options):
    if path is not None:
        path.write_bytes(content)
        options["ssl_keystore_location"] = str(path)
    given = config(**options)
    return key_pair(given, read_files(given)[1])


def fault(read, *arguments, **options):
    with pytest.raises(ConfigError) as raised:
        read(*arguments, **options)
    (text,) = raised.value.faults
    assert SECRET not in text
    return text


def jks(*certificates, password=SECRET, magic="feedfeed", keys=()):
    """A file as Java's JavaKeyStore writes it; ``keys``: chains of private keys."""

    def field(data, size=4):
        return len(data).to_bytes(size, "big") + data

    def encoded(certificate):
        return field(b"X.509", 2) + field(certificate.public_bytes(Encoding.DER))

    entries = [b"\0\0\0\x02" + field(b"ca", 2) + bytes(8) + encoded(each) for each in certificates]
    for chain in keys:
        entry = b"\0\0\0\x01" + field(b"key", 2) + bytes(8) + field(b"encrypted")
        entries.append(entry + len(chain).to_bytes(4, "big") + b"".join(map(encoded, chain)))
    content = bytes.fromhex(magic) + b"\0\0\0\x02" + len(entries).to_bytes(4, "big") + b"".join(entries)
    return with_digest(content, password)


def with_digest(content, password=SECRET):
    return content + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def p12(*, key=CLIENT.key, certificate=CERTIFICATE, others=(CA_CERTIFICATE, INTERMEDIATE_CERTIFICATE), alias=b"client"):
    encryption = BestAvailableEncryption(SECRET.encode())
    return pkcs12.serialize_key_and_certificates(alias, key, certificate, others, encryption)


ONLY_CA = p12(key=None, certificate=None, others=[CA_CERTIFICATE])
PEM = pem(CA_CERTIFICATE, INTERMEDIATE_CERTIFICATE).decode()


@pytest.mark.parametrize(
    "text",
    [
        PEM,
        PEM.rstrip(),
        PEM.replace("\n", "\r\n"),
        PEM.replace("\n", "\\n"),
        PEM.replace("\n", "\\r\\n"),
        PEM.replace("\n", " "),
        PEM.replace("\n", "\n    "),
        f"Bag Attributes\n    friendlyName: ca\nsubject=CN = ca\n{PEM}",
        PEM.replace(" CERTIFICATE", " X509 CERTIFICATE"),
        PEM + key_pem(CLIENT.key).decode(),
    ],
    ids=["as it is", "no last line end", "CRLF", r"\n", r"\r\n", "one line", "indented", "text around", "X509", "key"],
)  # fmt: skip
def test_inline_certificates_are_read_in_the_forms_users_paste(text):
    assert trusted(ssl_truststore_certificates=text) == der(CA_CERTIFICATE, INTERMEDIATE_CERTIFICATE)


@pytest.mark.parametrize("type_", ["JKS", "PKCS12", "PEM"])
@pytest.mark.parametrize("content", [pem(CA_CERTIFICATE), jks(CA_CERTIFICATE), ONLY_CA], ids=["PEM", "JKS", "PKCS12"])
def test_the_content_of_a_truststore_says_what_it_is_not_its_type(content, type_, tmp_path):
    options = {"ssl_truststore_type": type_, "ssl_truststore_password": SECRET}
    assert trusted(tmp_path / "truststore", content, **options) == der(CA_CERTIFICATE)


def test_a_jks_truststore_is_read_without_a_password_and_its_digest_checked_with_one(tmp_path):
    path = tmp_path / "truststore.jks"
    assert trusted(path, jks(CA_CERTIFICATE)) == der(CA_CERTIFICATE)
    assert fault(trusted, path, jks(CA_CERTIFICATE), ssl_truststore_password="wrong") == (
        f"ssl.truststore.location {path}: ssl.truststore.password is wrong, or the file is damaged."
    )


def test_of_private_keys_in_a_jks_truststore_java_trusts_the_first_certificate(tmp_path):
    content = jks(CA_CERTIFICATE, keys=[CHAIN])
    assert trusted(tmp_path / "truststore.jks", content) == der(CA_CERTIFICATE, CERTIFICATE)


def test_a_damaged_jks_truststore_is_an_error_wherever_it_is_cut(tmp_path):
    path, content = tmp_path / "truststore.jks", jks(CA_CERTIFICATE, keys=[CHAIN])
    for end in [*range(4, 60), len(content) - 1]:
        assert fault(trusted, path, content[:end]) == f"ssl.truststore.location {path} is truncated or damaged."
    empty = bytes.fromhex("feedfeed00000001000000010000000200026361") + bytes(8 + 4 + 20)
    assert fault(trusted, path, empty) == f"ssl.truststore.location {path} is truncated or damaged."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (ONLY_CA, "ssl.truststore.password is wrong, or the file is damaged."),
        (pem(CA_CERTIFICATE)[:-40], "has no certificate (a block -----BEGIN CERTIFICATE-----)."),
        (PEM.encode()[:-40], "is truncated: its last -----BEGIN has no -----END."),
        (pem(CA_CERTIFICATE).replace(b"MII", b"M!I"), "certificate 1 is truncated or damaged."),
        (key_pem(CLIENT.key), "has no certificate (a block -----BEGIN CERTIFICATE-----)."),
        (b"", "is empty."),
        (b"hello", "is neither PEM nor PKCS12 nor JKS."),
        (CA_CERTIFICATE.public_bytes(Encoding.DER), "is neither PEM nor PKCS12 nor JKS."),
        (jks(CA_CERTIFICATE, magic="cececece"), "is a JCEKS file, which only Java can decrypt; convert it"),
    ],
)  # fmt: skip
def test_a_truststore_that_cannot_be_used_is_an_error_with_option_and_file(content, text, tmp_path):
    path = tmp_path / "truststore"
    said = fault(trusted, path, content, ssl_truststore_password="wrong")
    assert said.startswith(f"ssl.truststore.location {path}")
    assert text in said


def test_a_folder_or_a_missing_file_is_an_error_with_option_and_path(tmp_path):
    assert fault(trusted, ssl_truststore_location=str(tmp_path)) == f"ssl.truststore.location {tmp_path} is not a file."
    missing = tmp_path / "none.p12"
    assert fault(pair, ssl_keystore_location=str(missing)) == (
        f"ssl.keystore.location {missing} cannot be read: No such file or directory."
    )


KEY_FORMS = {
    "PKCS8": (PrivateFormat.PKCS8, b"BEGIN ENCRYPTED PRIVATE KEY"),
    "traditional": (PrivateFormat.TraditionalOpenSSL, b"Proc-Type: 4,ENCRYPTED"),
}


@pytest.mark.parametrize("one_line", [False, True], ids=["lines", "one line"])
@pytest.mark.parametrize("form", KEY_FORMS)
def test_an_encrypted_key_is_read_with_its_password(form, one_line):
    layout, mark = KEY_FORMS[form]
    key = CLIENT.key.private_bytes(Encoding.PEM, layout, BestAvailableEncryption(SECRET.encode()))
    assert mark in key
    text = key.decode().replace("\n", " ") if one_line else key.decode()
    inline = {"ssl_keystore_key": text, "ssl_keystore_certificate_chain": pem(*CHAIN).decode()}
    read = pair(ssl_key_password=SECRET, **inline)
    assert (key_pem(read.key), read.chain) == (key_pem(CLIENT.key), der(*CHAIN))
    assert fault(pair, ssl_key_password="wrong", **inline) == (
        "ssl.keystore.key: the private key cannot be read: ssl.key.password is wrong, or the key is damaged."
    )
    assert fault(pair, **inline) == (
        "ssl.keystore.key has an encrypted private key; give its password as ssl.key.password."
    )


def test_a_plain_key_is_read_whether_or_not_there_is_a_password(tmp_path):
    content = key_pem(CLIENT.key) + pem(*CHAIN)
    for options in ({}, {"ssl_key_password": SECRET}):
        read = pair(tmp_path / "client.pem", content, **options)
        assert (key_pem(read.key), read.chain) == (key_pem(CLIENT.key), der(*CHAIN))


@pytest.mark.parametrize(("keys", "count"), [(0, "no private key"), (2, "2 private keys")])
def test_a_pem_keystore_has_one_key(keys, count, tmp_path):
    said = fault(pair, tmp_path / "client.pem", key_pem(CLIENT.key) * keys + pem(*CHAIN))
    assert said.startswith(f"ssl.keystore.location {tmp_path / 'client.pem'} has {count}")


def test_a_pkcs12_keystore_gives_the_key_and_its_chain_from_its_own_certificate(tmp_path):
    others = (CA_CERTIFICATE, Entity("unrelated").certify_ca(Entity("unrelated")), INTERMEDIATE_CERTIFICATE)
    read = pair(tmp_path / "client.jks", p12(others=others), ssl_keystore_password=SECRET)
    assert (key_pem(read.key), read.chain) == (key_pem(CLIENT.key), der(*CHAIN, CA_CERTIFICATE))


@pytest.mark.parametrize(
    ("content", "password", "text"),
    [
        (p12(), None, ": give its password as ssl.keystore.password."),
        (p12(), "wrong", ": ssl.keystore.password is wrong, or the file is damaged."),
        (p12(key=None, certificate=None), SECRET, " has no private key."),
        (p12(certificate=None, others=None), SECRET, " has no certificate for its private key."),
    ],
)
def test_a_pkcs12_keystore_that_cannot_be_used_is_an_error(content, password, text, tmp_path):
    path = tmp_path / "client.p12"
    assert fault(pair, path, content, ssl_keystore_password=password) == f"ssl.keystore.location {path}{text}"


def test_several_private_keys_are_an_error_with_their_aliases(tmp_path):
    """Our libraries write one key: the parts of two files are put into one, without its MAC."""
    one, two = (asn1.Pfx.load(p12(alias=alias)).authenticated_safe for alias in (b"one", "zwei €".encode()))
    both = asn1.AuthenticatedSafe([*one, *two])
    content = asn1.Pfx(
        {"version": "v3", "auth_safe": {"content_type": "data", "content": core.OctetString(both.dump())}}
    )
    said = fault(pair, tmp_path / "client.p12", content.dump(), ssl_keystore_password=SECRET)
    assert "has 2 private keys, of which no option chooses one: one, zwei €. " in said


def test_incident_a_private_key_with_an_empty_list_of_names_was_an_index_error(tmp_path):
    safe = asn1.Pfx.load(p12()).authenticated_safe
    (bag,) = asn1.SafeContents.load(
        next(part for part in safe if part["content_type"].native == "data")["content"].native
    )
    names = next(each for each in bag["bag_attributes"] if each["type"].native == "friendly_name")
    names["values"] = []
    parts = [{"content_type": "data", "content": core.OctetString(asn1.SafeContents([bag, bag]).dump())}]
    safe = core.OctetString(asn1.AuthenticatedSafe(parts).dump())
    content = asn1.Pfx({"version": "v3", "auth_safe": {"content_type": "data", "content": safe}})
    said = fault(pair, tmp_path / "client.p12", content.dump(), ssl_keystore_password=SECRET)
    assert "has 2 private keys, of which no option chooses one: (without a name), (without a name). " in said


@pytest.mark.jvm
class TestKeytool:
    """Files that keytool writes."""

    password = Password("secret-of-6")

    def keytool(self, *arguments):
        given = [*map(str, arguments), "-storepass", self.password.value, "-noprompt"]
        keytool = find_java().with_name("keytool")
        subprocess.run([keytool, *given], check=True, capture_output=True, timeout=DEADLINE_S)

    def generate(self, path, alias, kind):
        name = ("-genkeypair", "-alias", alias, "-dname", f"CN={alias}", "-keyalg", "EC")
        self.keytool(*name, "-keystore", path, "-storetype", kind)

    @pytest.mark.parametrize("legacy", [(), ("-J-Dkeystore.pkcs12.legacy",)], ids=["", "legacy"])
    @pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
    def test_a_truststore(self, kind, legacy, tmp_path):
        (tmp_path / "ca.pem").write_bytes(pem(CA_CERTIFICATE))
        path = tmp_path / "truststore.jks"
        self.keytool(
            *legacy, "-importcert", "-alias", "ca", "-file", tmp_path / "ca.pem", "-keystore", path, "-storetype", kind
        )
        assert trusted(path, path.read_bytes(), ssl_truststore_password=self.password) == der(CA_CERTIFICATE)

    def test_a_keystore_with_two_keys(self, tmp_path):
        path = tmp_path / "client.jks"
        self.generate(path, "one", "PKCS12")
        assert pair(path, path.read_bytes(), ssl_keystore_password=self.password).chain
        self.generate(path, "two", "PKCS12")
        assert ": one, two. " in fault(pair, path, path.read_bytes(), ssl_keystore_password=self.password)

    @pytest.mark.parametrize("algorithm", ["EC", "RSA"])
    @pytest.mark.parametrize("key_password", [None, Password("other-pass")], ids=["same", "differing"])
    def test_the_key_of_a_jks_keystore_is_that_of_the_same_store_as_pkcs12(self, key_password, algorithm, tmp_path):
        path, converted = tmp_path / "client.jks", tmp_path / "client.p12"
        of_key = ("-keypass", key_password.value) if key_password else ()
        name = ("-genkeypair", "-alias", "one", "-dname", "CN=one", "-keyalg", algorithm)
        self.keytool(*name, "-keystore", path, "-storetype", "JKS", *of_key)
        passwords = {"ssl_keystore_password": self.password, "ssl_key_password": key_password}
        read = pair(path, path.read_bytes(), **{n: each for n, each in passwords.items() if each})
        to = ("-importkeystore", "-srckeystore", path, "-srcstorepass", self.password.value, "-srcalias", "one")
        of_key = ("-srckeypass", key_password.value, "-destkeypass", self.password.value) if key_password else ()
        self.keytool(*to, *of_key, "-destkeystore", converted, "-deststoretype", "PKCS12")
        other = pair(converted, converted.read_bytes(), ssl_keystore_password=self.password)
        assert read.key.private_numbers() == other.key.private_numbers()
        assert read.chain == other.chain
        content = path.read_bytes()
        assert "ssl.keystore.password is wrong" in fault(pair, path, content, ssl_keystore_password="wrong")
        assert "give its password as ssl.keystore.password" in fault(pair, path, content)
        wrong = {"ssl_keystore_password": self.password, "ssl_key_password": "wrong"}
        assert "ssl.key.password is wrong" in fault(pair, path, content, **wrong)
        if key_password:
            said = fault(pair, path, content, ssl_keystore_password=self.password)
            assert "ssl.key.password is not given, and the key has a password of its own" in said

    def test_a_keystore_of_java_is_converted_by_the_command_that_the_error_names(self, tmp_path):
        path = tmp_path / "client.jks"
        self.generate(path, "one", "JCEKS")
        said = fault(pair, path, path.read_bytes(), ssl_keystore_password=self.password)
        assert "is a JCEKS file, which only Java can decrypt; convert it to PKCS12: keytool -importkeystore" in said
        passwords = ["-srcstorepass", self.password.value, "-deststorepass", self.password.value, "-noprompt"]
        _, *arguments = said[said.index("keytool ") :].split()
        keytool = find_java().with_name("keytool")
        subprocess.run([keytool, *arguments, *passwords], check=True, capture_output=True, timeout=DEADLINE_S)
        converted = tmp_path / "client.jks.p12"
        assert pair(converted, converted.read_bytes(), ssl_keystore_password=self.password).chain
