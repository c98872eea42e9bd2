"""Truststore and keystore of a configuration: PEM, PKCS12 or JKS, in a file or inline.

The content says what a file is, because since Java 9 keytool writes PKCS12 into files named ``.jks``. PEM is read as
users give it: in a file or inline, on one line, with ``\\n`` for line ends, with text around it. No library reads JKS,
so it has a file of its own.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from asn1crypto import pkcs12, x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.config.producer_config import ProducerConfig
from spark_kafka_sink.common.config.providers import file_fault
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.security import jks

_TRUSTSTORE, _KEYSTORE = "ssl.truststore.location", "ssl.keystore.location"
_PEM_BLOCK = re.compile(rb"-+BEGIN ([A-Z0-9 ]+)-+(.*?)-+END \1-+", re.DOTALL)
# Encrypted keys in OpenSSL's old format have headers: `Proc-Type: 4,ENCRYPTED` and `DEK-Info: AES-256-CBC,<salt>`.
_PEM_HEADER = re.compile(rb"\s*([\w-]+:\s*\S+)")
_PEM_BEGIN = b"-BEGIN "
_KEY_BAGS = ("key_bag", "pkcs8_shrouded_key_bag")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client's private key and its certificates in DER, its own first. ``name`` is option and file, for errors."""

    name: str
    key: PrivateKeyTypes = field(repr=False)
    chain: list[bytes] = field(repr=False)


def read_files(config: ProducerConfig) -> tuple[bytes | None, bytes | None]:
    """The contents of truststore and keystore, None for one that no option names."""
    return (
        _read(_TRUSTSTORE, config.ssl_truststore_location),
        _read(_KEYSTORE, config.ssl_keystore_location),
    )


def truststore_name(config: ProducerConfig) -> str:
    """The option and the file of the truststore, for errors."""
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
    if file.startswith(jks.JKS):
        return jks.certificates(name, file, config.ssl_truststore_password)
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
    if file.startswith(jks.JKS):
        passwords = config.ssl_keystore_password, config.ssl_key_password
        return KeyPair(name, *jks.key_and_chain(name, file, *passwords))
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
    if content.startswith(jks.JCEKS):
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
    """The private key: PKCS8 or OpenSSL's old formats, plain or encrypted with ``ssl.key.password``."""
    keys = [(label, body) for label, body in _pem_blocks(name, content) if label.endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        count = f"{len(keys)} private keys" if keys else "no private key (a block -----BEGIN PRIVATE KEY-----)"
        raise ConfigError([f"{name} has {count}; it must have one."])
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
    """Label and body of each block. A last block without its end is an error, because the file may be half written."""
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

    Java trusts only the certificates that keytool has marked, so none of a file that openssl has made.
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
        raise ConfigError([f"{name} has no certificate of its private key."])
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
