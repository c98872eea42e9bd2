"""Truststore and keystore of a configuration: PEM, PKCS12 or JKS, in a file or inline.

The content says what a file is: since Java 9, keytool writes PKCS12 into files named ``.jks``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from spark_kafka_sink.common.config.operator_limits import file_fault
from spark_kafka_sink.common.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.network.security import jks, pem, pkcs12

_TRUSTSTORE, _KEYSTORE = "ssl.truststore.location", "ssl.keystore.location"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client's private key and its certificates in DER, its own first. ``name``: option and file."""

    name: str
    key: PrivateKeyTypes = field(repr=False)
    chain: list[bytes] = field(repr=False)


def read_files(config: ProducerConfig) -> tuple[bytes | None, bytes | None]:
    """The files of truststore and keystore, None where the option names none."""
    return (
        _read(_TRUSTSTORE, config.ssl_truststore_location),
        _read(_KEYSTORE, config.ssl_keystore_location),
    )


def truststore_name(config: ProducerConfig) -> str:
    """What errors call the truststore: option and file."""
    if config.ssl_truststore_certificates is not None:
        return "ssl.truststore.certificates"
    return f"{_TRUSTSTORE} {config.ssl_truststore_location}"


def trusted_certificates(config: ProducerConfig, file: bytes | None) -> list[bytes] | None:
    """The truststore's certificates in DER, None without a truststore."""
    name = truststore_name(config)
    if config.ssl_truststore_certificates is not None:
        return pem.certificates(name, config.ssl_truststore_certificates.value.encode())
    if file is None:
        return None
    if file.startswith(jks.JKS):
        return jks.certificates(name, file, config.ssl_truststore_password)
    if pem.is_pem(file):
        return pem.certificates(name, file)
    if pkcs12.is_pkcs12(file):
        return pkcs12.certificates(name, file, config.ssl_truststore_password)
    raise _unknown(name, config.ssl_truststore_location, file)


def key_pair(config: ProducerConfig, file: bytes | None) -> KeyPair | None:
    """The keystore's private key and certificates, None without a keystore."""
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    if key is not None and chain is not None:
        option = "ssl.keystore.key"
        read = pem.private_key(option, key.value.encode(), config.ssl_key_password)
        return KeyPair(option, read, pem.certificates("ssl.keystore.certificate.chain", chain.value.encode()))
    if file is None:
        return None
    name = f"{_KEYSTORE} {config.ssl_keystore_location}"
    if pem.is_pem(file):
        return KeyPair(name, pem.private_key(name, file, config.ssl_key_password), pem.certificates(name, file))
    if pkcs12.is_pkcs12(file):
        return KeyPair(name, *pkcs12.key_and_chain(name, file, config.ssl_keystore_password))
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
    """The error for a file that cannot be used here: with the command that converts it, where there is one."""
    if content.startswith(jks.JCEKS):
        return ConfigError([
            f"{name} is a JCEKS file, which only Java can decrypt; convert it to PKCS12: keytool -importkeystore "
            f"-srckeystore {path} -srcstoretype JCEKS -destkeystore {path}.p12 -deststoretype PKCS12"
        ])  # fmt: skip
    what = "is empty" if not content else "is neither PEM nor PKCS12 nor JKS"
    return ConfigError([f"{name} {what}."])
