"""PKCS12 files: certificates and private keys by ``cryptography``, the keys' aliases by ``asn1crypto``."""

from __future__ import annotations

from asn1crypto import pkcs12
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import ConfigError

_KEYS = ("key_bag", "pkcs8_shrouded_key_bag")


def is_pkcs12(content: bytes) -> bool:
    try:
        return bool(pkcs12.Pfx.load(content)["version"].native == "v3")
    except (ValueError, TypeError, KeyError):
        return False


def certificates(name: str, content: bytes, password: Password | None) -> list[bytes]:
    """All certificates, in DER. ``name`` begins the errors: option and file.

    Wider than Java, which trusts those that keytool has marked, and so none of a file that openssl has made.
    """
    store = _load(name, content, password, "ssl.truststore.password")
    found = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    if not found:
        raise ConfigError([f"{name} has no certificate."])
    return [each.public_bytes(Encoding.DER) for each in found]


def key_and_chain(name: str, content: bytes, password: Password | None) -> tuple[PrivateKeyTypes, list[bytes]]:
    """The one private key; its certificate and those of the issuers that the file has, in DER."""
    aliases = _key_aliases(name, content)
    if len(aliases) > 1:
        raise ConfigError([
            f"{name} has {len(aliases)} private keys, of which no option chooses one: {', '.join(aliases)}. Make a "
            "file with one of them: keytool -importkeystore -srckeystore <file> -srcalias <alias> -destkeystore "
            "<new file> -deststoretype PKCS12."
        ])  # fmt: skip
    store = _load(name, content, password, "ssl.keystore.password")
    if store.key is None:
        raise ConfigError([f"{name} has no private key."])
    if store.cert is None:
        raise ConfigError([f"{name} has no certificate of its private key."])
    chain = [store.cert.certificate]
    issuers = {each.certificate.subject: each.certificate for each in store.additional_certs}
    while (issuer := issuers.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return store.key, [each.public_bytes(Encoding.DER) for each in chain]


def _load(name: str, content: bytes, password: Password | None, option: str) -> PKCS12KeyAndCertificates:
    try:
        return load_pkcs12(content, None if password is None else password.value.encode())
    except Exception:  # cryptography raises several; none says which of the two it is
        fault = f"give its password as {option}" if password is None else f"{option} is wrong, or the file is damaged"
        raise ConfigError([f"{name}: {fault}."]) from None


def _key_aliases(name: str, content: bytes) -> list[str]:
    """The friendlyName of each private key. Keys are encrypted one by one, in a part that is not encrypted itself."""
    try:
        parts = [part for part in pkcs12.Pfx.load(content).authenticated_safe if part["content_type"].native == "data"]
        bags = [bag for part in parts for bag in pkcs12.SafeContents.load(part["content"].native)]
        return [_alias(bag) for bag in bags if bag["bag_id"].native in _KEYS]
    except (ValueError, TypeError, KeyError):
        raise ConfigError([f"{name} is truncated or damaged."]) from None


def _alias(bag: pkcs12.SafeBag) -> str:
    names = {each["type"].native: each["values"].native for each in bag["bag_attributes"] or ()}
    return str(names.get("friendly_name", ["(without a name)"])[0])
