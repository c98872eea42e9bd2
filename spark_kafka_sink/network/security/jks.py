"""Java's own keystore format, JKS: certificates are in clear, private keys are encrypted by a cipher of its own."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from asn1crypto.keys import EncryptedPrivateKeyInfo
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_private_key

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import ConfigError

JKS: Final = bytes.fromhex("feedfeed")
JCEKS: Final = bytes.fromhex("cececece")

_KEY, _CERTIFICATE = 1, 2
_DIGEST = hashlib.sha1().digest_size


def certificates(name: str, content: bytes, password: Password | None) -> list[bytes]:
    """The certificates that Java trusts, in DER: trusted entries, and the first of each private key's chain.

    ``name`` begins the errors: option and file. The digest is checked if there is a password.
    """
    if password is not None and not _digest_holds(content, password.value):
        raise ConfigError([f"{name}: ssl.truststore.password is wrong, or the file is damaged."])
    try:
        return [each.chain[0] for each in _parse(memoryview(content)[:-_DIGEST]) if each.chain]
    except ValueError:
        raise ConfigError([f"{name} is truncated or damaged."]) from None


def key_and_chain(
    name: str, content: bytes, password: Password | None, key_password: Password | None
) -> tuple[PrivateKeyTypes, list[bytes]]:
    """The one private key, and its certificates in DER. Without ``key_password`` the file's is used, as in Java."""
    if password is None:
        raise ConfigError([f"{name}: give its password as ssl.keystore.password."])
    if not _digest_holds(content, password.value):
        raise ConfigError([f"{name}: ssl.keystore.password is wrong, or the file is damaged."])
    try:
        keys = [each for each in _parse(memoryview(content)[:-_DIGEST]) if each.key is not None and each.chain]
    except ValueError:
        raise ConfigError([f"{name} is truncated or damaged."]) from None
    if len(keys) != 1:
        raise ConfigError([f"{name} has {len(keys) or 'no'} private keys; it must have one."])
    key, chain = keys[0]
    try:
        return load_der_private_key(_decrypt(key or b"", (key_password or password).value), None), chain
    except Exception:  # asn1crypto and cryptography raise several; their texts may quote the key
        fault = "is wrong" if key_password is not None else "is not given, and the key has another one than the file"
        raise ConfigError([f"{name}: ssl.key.password {fault}, or the private key is damaged."]) from None


def _decrypt(key: bytes, password: str) -> bytes:
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


class _Entry(NamedTuple):
    """An entry of the store. ``key`` is encrypted; it is None for a trusted certificate."""

    key: bytes | None
    chain: list[bytes]


def _digest_holds(content: bytes, password: str) -> bool:
    digest = hashlib.sha1(password.encode("utf-16-be"))
    digest.update(b"Mighty Aphrodite")
    digest.update(content[:-_DIGEST])
    return hmac.compare_digest(digest.digest(), content[-_DIGEST:])


def _parse(data: memoryview) -> list[_Entry]:
    """The entries of a store (Java: ``JavaKeyStore.engineLoad``). Raises ``ValueError``."""
    reader = _Reader(data)
    reader.take(4)
    version = reader.integer(4)
    found = []
    for _ in range(reader.integer(4)):
        tag, key = reader.integer(4), None
        reader.take(reader.integer(2))  # alias
        reader.take(8)  # date
        if tag == _KEY:
            key = reader.take(reader.integer(4))
        elif tag != _CERTIFICATE:
            raise ValueError(tag)
        chain = [reader.certificate(version) for _ in range(reader.integer(4) if tag == _KEY else 1)]
        found.append(_Entry(key, chain))
    if reader.rest:
        raise ValueError("bytes behind the last entry")
    return found


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
