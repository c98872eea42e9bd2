"""Certificates that a good CA would not issue, for tests of what is trusted."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.unit.security.tls_peers import HOST

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
NOW = datetime.fromtimestamp(time.time(), UTC)
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def weak_key() -> Key:
    return rsa.generate_private_key(65537, 1024)


class Entity:
    """A name with its key, which issues certificates of others and of itself."""

    def __init__(self, name: str, key: Key | None = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = key or new_key()

    def certify(
        self, subject: Entity, *, days: tuple[int, int] = (-30, 30), purpose: x509.ObjectIdentifier | None = None
    ) -> x509.Certificate:
        """Of a broker."""
        names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
        return self._signed(self._builder(subject, days, purpose).add_extension(names, critical=False))

    def certify_ca(
        self,
        subject: Entity,
        *,
        days: tuple[int, int] = (-30, 30),
        purpose: x509.ObjectIdentifier | None = None,
        critical: bool = True,
        ca: bool = True,
    ) -> x509.Certificate:
        constraints = x509.BasicConstraints(ca, None)
        return self._signed(self._builder(subject, days, purpose).add_extension(constraints, critical))

    def _builder(
        self, subject: Entity, days: tuple[int, int], purpose: x509.ObjectIdentifier | None
    ) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(self.name, subject.name, subject.key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(NOW + timedelta(days[0])).not_valid_after(NOW + timedelta(days[1]))
        usage = None if purpose is None else x509.ExtendedKeyUsage([purpose])
        return builder if usage is None else builder.add_extension(usage, critical=False)

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self.key, hashes.SHA256())


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def key_pem(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
