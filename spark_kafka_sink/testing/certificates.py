"""Certificates for test listeners: a CA of its own, made by ``trustme`` (extra ``[testing]``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from spark_kafka_sink.errors import KafkaError

HOST_NAMES: Final = ("127.0.0.1", "localhost")


class MissingTrustmeError(KafkaError):
    """``trustme`` is not installed; the message says how to install it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key in PEM. ``chain``: the certificate comes first. ``key``: PKCS #8, which Java
    requires."""

    chain: str
    key: str = field(repr=False)

    @property
    def key_store(self) -> str:
        """The content of a PEM file for ``ssl.keystore.location``."""
        return self.key + self.chain


class CertificateAuthority:
    """An authority whose certificates only clients with its ``certificate`` (PEM) trust. Two authorities do not trust
    each other.

    Raises ``MissingTrustmeError``.
    """

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError:
            raise MissingTrustmeError(
                "Listeners with TLS need trustme for their certificates: pip install trustme"
            ) from None
        self._ca = trustme.CA()
        self.certificate: str = self._ca.cert_pem.bytes().decode()

    def issue(
        self,
        common_name: str = "localhost",
        host_names: tuple[str, ...] = HOST_NAMES,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> Certificate:
        """A new key with a certificate, valid from 2000 to 2100 by default."""
        from cryptography.hazmat.primitives import serialization

        leaf = self._ca.issue_cert(*host_names, common_name=common_name, not_before=not_before, not_after=not_after)
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Certificate("".join(pem.bytes().decode() for pem in leaf.cert_chain_pems), pem.decode())
