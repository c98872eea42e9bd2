"""Java's own keystore format, JKS: certificates are plain in it, private keys are encrypted as only Java does."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from spark_kafka_sink.config.option import Password
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
        return _parse(memoryview(content)[:-_DIGEST])
    except ValueError:
        raise ConfigError([f"{name} is truncated or damaged."]) from None


def _digest_holds(content: bytes, password: str) -> bool:
    digest = hashlib.sha1(password.encode("utf-16-be"))
    digest.update(b"Mighty Aphrodite")
    digest.update(content[:-_DIGEST])
    return hmac.compare_digest(digest.digest(), content[-_DIGEST:])


def _parse(data: memoryview) -> list[bytes]:
    """Java: ``JavaKeyStore.engineLoad``."""
    reader = _Reader(data)
    reader.take(4)
    version = reader.integer(4)
    found = []
    for _ in range(reader.integer(4)):
        tag = reader.integer(4)
        reader.take(reader.integer(2))  # alias
        reader.take(8)  # date
        if tag == _KEY:
            reader.take(reader.integer(4))
        elif tag != _CERTIFICATE:
            raise ValueError(tag)
        chain = [reader.certificate(version) for _ in range(reader.integer(4) if tag == _KEY else 1)]
        found += chain[:1]
    if reader.rest:
        raise ValueError("bytes behind the last entry")
    return found


class _Reader:
    """Big-endian fields from the front of ``rest``. Raises ValueError at its end."""

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
