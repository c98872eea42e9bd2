"""Truststore and keystore of a configuration: PEM, PKCS12 or JKS, in a file or inline.

The kind of a file is detected from its content, because since Java 9 keytool writes PKCS12 into files named ``.jks``.
PEM is read as users give it: in a file or inline, on one line, with ``\\n`` for line ends, with text around it. JKS is
Java's own format, which no library reads: certificates are in clear, private keys are encrypted by a cipher of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from asn1crypto import pkcs12, x509
from asn1crypto.keys import EncryptedPrivateKeyInfo
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_der_private_key, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.config.producer_config import ProducerConfig
from spark_kafka_sink.common.config.providers import file_fault
from spark_kafka_sink.errors import ConfigError

_TRUSTSTORE, _KEYSTORE = "ssl.truststore.location", "ssl.keystore.location"
_PEM_BLOCK = re.compile(rb"-+BEGIN ([A-Z0-9 ]+)-+(.*?)-+END \1-+", re.DOTALL)
# Encrypted keys in OpenSSL's old format have headers: `Proc-Type: 4,ENCRYPTED` and `DEK-Info: AES-256-CBC,<salt>`.
_PEM_HEADER = re.compile(rb"\s*([\w-]+:\s*\S+)")
_PEM_BEGIN = b"-BEGIN "
_KEY_BAGS = ("key_bag", "pkcs8_shrouded_key_bag")
_JKS = bytes.fromhex("feedfeed")
_JCEKS = bytes.fromhex("cececece")
_KEY, _CERTIFICATE = 1, 2
_DIGEST = hashlib.sha1().digest_size


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client's private key and its certificates in DER, its own first. ``name`` is option and file, for errors."""

    name: str
    key: PrivateKeyTypes = field(repr=False)
    chain: list[bytes] = field(repr=False)


def read_files(config: ProducerConfig) -> tuple[bytes | None, bytes | None]:
    """The contents of truststore and keystore, each None if no option names it."""
    return (
        _read(_TRUSTSTORE, config.ssl_truststore_location),
        _read(_KEYSTORE, config.ssl_keystore_location),
    )


def truststore_name(config: ProducerConfig) -> str:
    """The truststore's option and file, for errors."""
    if config.ssl_truststore_certificates is not None:
        return "ssl.truststore.certificates"
    return f"{_TRUSTSTORE} {config.ssl_truststore_location}"


def trusted_certificates(config: ProducerConfig, file: bytes | None) -> list[bytes] | None:
    """The truststore's certificates in DER, None without a truststore."""
    name = truststore_name(config)
    if config.ssl_truststore_certificates is not None:
        return _pem_certificates(name, config.ssl_truststore_certificates.value.encode())
    if file is None:
        return None
    if file.startswith(_JKS):
        return _jks_certificates(name, file, config.ssl_truststore_password)
    if _is_pem(file):
        return _pem_certificates(name, file)
    if _is_pkcs12(file):
        return _pkcs12_certificates(name, file, config.ssl_truststore_password)
    raise _unknown(name, config.ssl_truststore_location, file)


def key_pair(config: ProducerConfig, file: bytes | None) -> KeyPair | None:
    """The keystore's private key and certificates, None without a keystore."""
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if key is not None and chain is not None:
        option = "ssl.keystore.key"
        read = _pem_private_key(option, key.value.encode(), config.ssl_key_password)
        return KeyPair(option, read, _pem_certificates("ssl.keystore.certificate.chain", chain.value.encode()))
    if file is None:
        return None
    name = f"{_KEYSTORE} {config.ssl_keystore_location}"
    if _is_pem(file):
        return KeyPair(name, _pem_private_key(name, file, config.ssl_key_password), _pem_certificates(name, file))
    if _is_pkcs12(file):
        return KeyPair(name, *_pkcs12_key_and_chain(name, file, config.ssl_keystore_password))
    if file.startswith(_JKS):
        return KeyPair(name, *_jks_key_and_chain(name, file, config.ssl_keystore_password, config.ssl_key_password))
    raise _unknown(name, config.ssl_keystore_location, file)


def _read(option: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    if (fault := file_fault(path)) is not None:
        raise ConfigError([f"{option} {path} {fault}."])
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise ConfigError([f"{option} {path} is not a file."])
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError([f"{option} {path} cannot be read: {error.strerror}."]) from None


def _unknown(name: str, path: str | None, content: bytes) -> ConfigError:
    """The error for a file that cannot be used here, with the command that converts it if there is one."""
    if content.startswith(_JCEKS):
        return ConfigError([
            f"{name} is a JCEKS file, which only Java can decrypt; convert it to PKCS12: keytool -importkeystore "
            f"-srckeystore {path} -srcstoretype JCEKS -destkeystore {path}.p12 -deststoretype PKCS12"
        ])  # fmt: skip
    what = "is empty" if not content else "is neither PEM nor PKCS12 nor JKS"
    return ConfigError([f"{name} {what}."])


def _is_pem(content: bytes) -> bool:
    return _PEM_BEGIN in content


def _pem_certificates(name: str, content: bytes) -> list[bytes]:
    """The certificates, in DER. ``name`` begins the errors: option and file."""
    found = []
    for label, body in _pem_blocks(name, content):
        if label.endswith(b"CERTIFICATE"):
            try:
                # openssl appends data to the DER of a certificate that it marks as trusted.
                found.append(x509.Certificate.load(base64.b64decode(b"".join(body.split()), validate=True)).dump())
            except (binascii.Error, ValueError):
                raise ConfigError([f"{name}: certificate {len(found) + 1} is truncated or damaged."]) from None
    if not found:
        raise ConfigError([f"{name} has no certificate (a block -----BEGIN CERTIFICATE-----)."])
    return found


def _pem_private_key(name: str, content: bytes, password: Password | None) -> PrivateKeyTypes:
    """The private key, from PKCS8 or OpenSSL's old formats, plain or encrypted with ``ssl.key.password``."""
    keys = [(label, body) for label, body in _pem_blocks(name, content) if label.endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        count = f"{len(keys)} private keys" if keys else "no private key (a block -----BEGIN PRIVATE KEY-----)"
        raise ConfigError([f"{name} has {count}, but must have one."])
    label, body = keys[0]
    encrypted = label.startswith(b"ENCRYPTED") or b"ENCRYPTED" in body
    if encrypted and password is None:
        raise ConfigError([f"{name} has an encrypted private key; give its password as ssl.key.password."])
    secret = password.value.encode() if encrypted and password is not None else None
    try:
        return load_pem_private_key(_pem_lines(label, body), secret)
    except Exception:  # cryptography raises several; their texts may quote the key
        wrong_password = "ssl.key.password is wrong, or the key is damaged"
        fault = wrong_password if encrypted else "it is truncated, damaged or of an unknown kind"
        raise ConfigError([f"{name}: the private key cannot be read: {fault}."]) from None


def _pem_blocks(name: str, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The label and body of each block. A last block without its end is an error, because the file may be half
    written."""
    content = content.replace(b"\\r", b"").replace(b"\\n", b"\n")
    end = 0
    for match in _PEM_BLOCK.finditer(content):
        end = match.end()
        yield match[1], match[2]
    if end and _is_pem(content[end:]):
        raise ConfigError([f"{name} is truncated: its last -----BEGIN has no -----END."])


def _pem_lines(label: bytes, body: bytes) -> bytes:
    """The block in lines, which parsers need."""
    headers = []
    while (header := _PEM_HEADER.match(body)) is not None:
        headers.append(header[1])
        body = body[header.end() :]
    data = b"".join(body.split())
    lines = [data[start : start + 64] for start in range(0, len(data), 64)]
    return b"\n".join([
        b"-----BEGIN " + label + b"-----", *headers, *([b""] if headers else []), *lines,
        b"-----END " + label + b"-----", b"",
    ])  # fmt: skip


def _is_pkcs12(content: bytes) -> bool:
    try:
        return bool(pkcs12.Pfx.load(content)["version"].native == "v3")
    except (ValueError, TypeError, KeyError):
        return False


def _pkcs12_certificates(name: str, content: bytes, password: Password | None) -> list[bytes]:
    """All certificates, in DER. ``name`` begins the errors: option and file.

    Java trusts only the certificates that keytool has marked, and so no certificate in a file made by openssl.
    """
    store = _load_pkcs12(name, content, password, "ssl.truststore.password")
    found = [
        certificate.certificate for certificate in (store.cert, *store.additional_certs) if certificate is not None
    ]
    if not found:
        raise ConfigError([f"{name} has no certificate."])
    return [certificate.public_bytes(Encoding.DER) for certificate in found]


def _pkcs12_key_and_chain(name: str, content: bytes, password: Password | None) -> tuple[PrivateKeyTypes, list[bytes]]:
    """The one private key, and in DER its certificate and those issuers' certificates that the file has."""
    aliases = _key_aliases(name, content)
    if len(aliases) > 1:
        raise ConfigError([
            f"{name} has {len(aliases)} private keys, of which no option chooses one: {', '.join(aliases)}. Make a "
            "file with one of them: keytool -importkeystore -srckeystore <file> -srcalias <alias> -destkeystore "
            "<new file> -deststoretype PKCS12."
        ])  # fmt: skip
    store = _load_pkcs12(name, content, password, "ssl.keystore.password")
    if store.key is None:
        raise ConfigError([f"{name} has no private key."])
    if store.cert is None:
        raise ConfigError([f"{name} has no certificate for its private key."])
    chain = [store.cert.certificate]
    issuers = {cert.certificate.subject: cert.certificate for cert in store.additional_certs}
    while (issuer := issuers.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return store.key, [certificate.public_bytes(Encoding.DER) for certificate in chain]


def _load_pkcs12(name: str, content: bytes, password: Password | None, option: str) -> PKCS12KeyAndCertificates:
    try:
        return load_pkcs12(content, None if password is None else password.value.encode())
    except Exception:  # cryptography raises several; none says which of the two it is
        fault = f"give its password as {option}" if password is None else f"{option} is wrong, or the file is damaged"
        raise ConfigError([f"{name}: {fault}."]) from None


def _key_aliases(name: str, content: bytes) -> list[str]:
    """The friendlyName of each private key, which is readable because keys are encrypted one by one."""
    try:
        parts = [part for part in pkcs12.Pfx.load(content).authenticated_safe if part["content_type"].native == "data"]
        bags = [bag for part in parts for bag in pkcs12.SafeContents.load(part["content"].native)]
        return [_alias(bag) for bag in bags if bag["bag_id"].native in _KEY_BAGS]
    except (ValueError, TypeError, KeyError):
        raise ConfigError([f"{name} is truncated or damaged."]) from None


def _alias(bag: pkcs12.SafeBag) -> str:
    names = {attribute["type"].native: attribute["values"].native for attribute in bag["bag_attributes"] or ()}
    first = next(iter(names.get("friendly_name") or ()), "(without a name)")
    return str(first)


def _jks_certificates(name: str, content: bytes, password: Password | None) -> list[bytes]:
    """The certificates that Java trusts, in DER: trusted entries, and the first of each private key's chain.

    ``name`` begins the errors: option and file. The digest is checked if there is a password.
    """
    if password is not None and not _digest_holds(content, password.value):
        raise ConfigError([f"{name}: ssl.truststore.password is wrong, or the file is damaged."])
    return [each.chain[0] for each in _jks_entries(name, content) if each.chain]


def _jks_key_and_chain(
    name: str, content: bytes, password: Password | None, key_password: Password | None
) -> tuple[PrivateKeyTypes, list[bytes]]:
    """The one private key, and its certificates in DER. Without ``key_password`` the file's password is used, as in
    Java."""
    if password is None:
        raise ConfigError([f"{name}: give its password as ssl.keystore.password."])
    if not _digest_holds(content, password.value):
        raise ConfigError([f"{name}: ssl.keystore.password is wrong, or the file is damaged."])
    keys = [each for each in _jks_entries(name, content) if each.key is not None and each.chain]
    if len(keys) != 1:
        raise ConfigError([f"{name} has {len(keys) or 'no'} private keys, but must have one."])
    key, chain = keys[0]
    try:
        return load_der_private_key(_decrypt_jks(key or b"", (key_password or password).value), None), chain
    except Exception:  # asn1crypto and cryptography raise several; their texts may quote the key
        fault = "is wrong" if key_password is not None else "is not given, and the key has a password of its own"
        raise ConfigError([f"{name}: ssl.key.password {fault}, or the private key is damaged."]) from None


def _decrypt_jks(key: bytes, password: str) -> bytes:
    """The PKCS8 bytes of an encrypted key (Java: ``sun.security.provider.KeyProtector``). Raises ``ValueError``."""
    data = EncryptedPrivateKeyInfo.load(key)["encrypted_data"].native
    secret = password.encode("utf-16-be")
    encrypted, stream, last = data[_DIGEST:-_DIGEST], b"", data[:_DIGEST]
    while len(stream) < len(encrypted):
        last = hashlib.sha1(secret + last).digest()
        stream += last
    plain = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), data[-_DIGEST:]):
        raise ValueError("another password")
    return plain


class _JksEntry(NamedTuple):
    """An entry of a store. ``key``: encrypted; None for a trusted certificate."""

    key: bytes | None
    chain: list[bytes]


def _digest_holds(content: bytes, password: str) -> bool:
    digest = hashlib.sha1(password.encode("utf-16-be"))
    digest.update(b"Mighty Aphrodite")
    digest.update(content[:-_DIGEST])
    return hmac.compare_digest(digest.digest(), content[-_DIGEST:])


def _jks_entries(name: str, content: bytes) -> list[_JksEntry]:
    """The entries of a store (Java: ``JavaKeyStore.engineLoad``), after which only its digest follows."""
    reader = _Reader(memoryview(content)[:-_DIGEST])
    try:
        reader.take(4)
        version = reader.integer(4)
        found = [_jks_entry(reader, version) for _ in range(reader.integer(4))]
        if reader.rest:
            raise ValueError("bytes after the last entry")
    except ValueError:
        raise ConfigError([f"{name} is truncated or damaged."]) from None
    return found


def _jks_entry(reader: _Reader, version: int) -> _JksEntry:
    tag, key = reader.integer(4), None
    reader.take(reader.integer(2))  # alias
    reader.take(8)  # date
    if tag == _KEY:
        key = reader.take(reader.integer(4))
    elif tag != _CERTIFICATE:
        raise ValueError(tag)
    return _JksEntry(key, [reader.certificate(version) for _ in range(reader.integer(4) if tag == _KEY else 1)])


class _Reader:
    """Takes big-endian fields from the front of ``rest``. Raises ``ValueError`` when it ends too early."""

    def __init__(self, data: memoryview) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise ValueError("too short")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return bytes(taken)

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def certificate(self, version: int) -> bytes:
        if version > 1:
            self.take(self.integer(2))  # X.509
        certificate = self.take(self.integer(4))
        if not certificate:
            raise ValueError("an empty certificate")
        return certificate
