"""``TlsContexts``: the ``ssl.SSLContext`` of new connections, from the ``ssl.*`` options."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import ssl
import tempfile
from contextlib import suppress
from dataclasses import fields
from typing import Final

from asn1crypto import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.config.producer_config import ProducerConfig
from spark_kafka_sink.common.config.security_rules import TLS_1_2, TLS_1_3
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.security.stores import (
    KeyPair,
    key_pair,
    read_files,
    trusted_certificates,
    truststore_name,
)
from spark_kafka_sink.network.security.validity import TlsContext

_log = logging.getLogger("spark_kafka_sink.network")

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JAVAS_KEYS: Final = "@SECLEVEL=1"
"""Allows RSA keys of 1024 bits, as Java does in certificates; OpenSSL's default, level 2, begins at 2048."""
_PURPOSES = "extended_key_usage"
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.[0-9]+")


class TlsContexts:
    """Keeps one context, and makes a new one after a store's file or the value of a placeholder has changed, or after a
    certificate of the truststore has expired or become valid.

    Raises ``ConfigError`` for stores that cannot be used. If stores become unusable later, the last context stays in
    use, with one warning, because a renewal may be half written.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._clock = SystemClock()
        self._digest = b""
        self._context: TlsContext | None = None
        self._warned = False
        self.context()

    def context(self) -> ssl.SSLContext:
        try:
            config = self._config.with_credentials("ssl_")
            files = read_files(config)
            digest = _digest(config, files)
            if self._context is None or digest != self._digest or self._clock.epoch_ms() > self._context.usable_until:
                self._context = _context(config, *files)
                self._digest = digest
            self._warned = False
        except ConfigError as error:
            if self._context is None:
                raise
            if not self._warned:
                _log.warning("New connections go on using the certificates loaded earlier: %s", error)
            self._warned = True
        return self._context


def _digest(config: ProducerConfig, files: tuple[bytes | None, bytes | None]) -> bytes:
    """A digest of everything that may change: the stores' files, and the credentials, which may have placeholders."""
    values = (getattr(config, field.name) for field in fields(config) if field.name.startswith("ssl_"))
    passwords = [value.value.encode() for value in values if isinstance(value, Password)]
    return b"".join(hashlib.sha256(b"" if file is None else file).digest() for file in [*files, *passwords])


def _context(config: ProducerConfig, truststore: bytes | None, keystore: bytes | None) -> TlsContext:
    context = TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _allow_versions_and_ciphers(context, config)
    _trust(context, config, trusted_certificates(config, truststore))
    if not config.ssl_endpoint_identification_algorithm:
        context.check_hostname = False
    pair = key_pair(config, keystore)
    if pair is not None:
        _load_key(context, pair)
    return context


def _allow_versions_and_ciphers(context: ssl.SSLContext, config: ProducerConfig) -> None:
    versions = [_VERSIONS[version] for version in config.ssl_enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    suites = config.ssl_cipher_suites
    older = [TLS_1_2[suite] for suite in suites if suite in TLS_1_2]
    if not older:
        older = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    try:
        context.set_ciphers(":".join([*older, _JAVAS_KEYS]))
        newer = [suite for suite in suites if suite in TLS_1_3]
        if newer and "TLSv1.3" in config.ssl_enabled_protocols and len(newer) < len(TLS_1_3):
            context.set_ciphersuites(":".join(newer))  # type: ignore[attr-defined] # Python 3.15
    except ssl.SSLError:
        raise ConfigError(
            [f"ssl.cipher.suites {','.join(suites)}: {ssl.OPENSSL_VERSION} has none of these suites."]
        ) from None


def _trust(context: TlsContext, config: ProducerConfig, certificates: list[bytes] | None) -> None:
    """Trusts these certificates. As in Java each is an anchor, even an intermediate CA's or the broker's own."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificates is None:
        _trust_system(context)
        return
    for number, certificate in enumerate(certificates, 1):
        try:
            if context.accepts_dates(certificate):
                context.load_verify_locations(cadata=_for_any_purpose(certificate))
        except ssl.SSLError as error:
            fault = f"certificate {number} cannot be used: {error.reason}"
            raise ConfigError([f"{truststore_name(config)}: {fault}."]) from None


def _trust_system(context: ssl.SSLContext) -> None:
    context.load_default_certs()
    paths = ssl.get_default_verify_paths()
    # OpenSSL reads the folder only when it looks up a certificate, so the context does not count the folder's
    # certificates.
    folder = os.listdir(paths.capath) if paths.capath else []
    hashed = any(_HASHED_NAME.fullmatch(name) for name in folder)
    if not hashed and context.cert_store_stats()["x509"] == 0:
        raise ConfigError([
            "ssl.truststore.location is not given, and this system has no trusted certificates in "
            f"{paths.openssl_cafile} or {paths.openssl_capath}; give a file with the certificate of the brokers' CA."
        ])  # fmt: skip


def _key_fault(pair: KeyPair, error: ssl.SSLError) -> str:
    """Why OpenSSL refuses the key. ``cryptography`` reads an RSASSA-PSS key as an RSA key, which does not fit the
    certificate.
    """
    is_pss = False
    with suppress(ValueError, TypeError, KeyError):  # the certificate is damaged
        is_pss = x509.Certificate.load(pair.chain[0]).public_key.algorithm == "rsassa_pss"
    if is_pss:
        return (
            "its private key is of the kind RSASSA-PSS, which cannot be used here: have a certificate issued for a "
            "key of the kind RSA (keytool -keyalg RSA, openssl genpkey -algorithm RSA) or EC"
        )
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    return f"{error.reason}"


def _load_key(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Loads the key through an encrypted file, removed at once, because ``ssl`` reads keys only from files."""
    password = secrets.token_hex(32)
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    chain = "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in pair.chain)
    path = None
    try:
        descriptor, path = tempfile.mkstemp()
        with os.fdopen(descriptor, "wb") as file:
            file.write(key + chain.encode())
        context.load_cert_chain(path, password=lambda: password)
    except ssl.SSLError as error:
        raise ConfigError([f"{pair.name}: {_key_fault(pair, error)}."]) from None
    except OSError as error:
        raise ConfigError(
            [f"{pair.name} needs a temporary file, which cannot be written: {error}; set TMPDIR."]
        ) from None
    finally:
        if path is not None:
            os.unlink(path)


def _for_any_purpose(certificate: bytes) -> bytes:
    """The certificate in DER, a CA's without its extended key usage.

    To Java an anchor is a name and a public key (RFC 5280, 6.1.1), but OpenSSL also checks its extended key usage. The
    signature is wrong without that extension, but the signature of an anchor is never checked.
    """
    try:
        ca = x509.Certificate.load(certificate)
        body = ca["tbs_certificate"]
        kept = [extension for extension in body["extensions"] or () if extension["extn_id"].native != _PURPOSES]
        if not ca.ca or len(kept) == len(body["extensions"] or ()):
            return certificate
        body["extensions"] = kept
        return bytes(ca.dump(force=True))
    except (ValueError, TypeError, KeyError):
        return certificate
