"""A local Kafka's secure listeners: key stores, ``server.properties``, the SCRAM users of ``kafka-storage format``."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import LOGIN_MODULES, Listener, quoted

_SCRAM_ITERATIONS: Final = 4096
_STORES: Final = (("ssl.keystore.", "ssl.key."), ("ssl.truststore.",))
_PLAIN_LOGIN: Final = f"{LOGIN_MODULES['PLAIN']} required"
_SCRAM_LOGIN: Final = f"{LOGIN_MODULES['SCRAM-SHA-512']} required;"


def write_stores(listeners: Mapping[str, Listener], authority: CertificateAuthority, folder: Path) -> None:
    """The CA's certificate and a key store for each listener with TLS, PEM."""
    (folder / "ca.pem").write_text(authority.certificate)
    for name, listener in listeners.items():
        if listener.has_tls:
            _key_store(name, folder).write_text(listener.key_store(authority))


def security_properties(listeners: Mapping[str, Listener], folder: Path, own: Mapping[str, str]) -> dict[str, str]:
    """The settings of ``server.properties`` for the stores in ``folder``.

    Clients of the plaintext listener are super users. A resource without ACLs is everybody's. ``own``: the user's
    properties. A key store or trust store among them, for one listener or for all, replaces the store in ``folder``.
    """
    properties: dict[str, str] = {}
    for name, listener in listeners.items():
        prefix = f"listener.name.{name.lower()}."
        if listener.has_tls:
            properties |= _tls_properties(prefix, name, listener, folder, own)
        if listener.has_sasl:
            properties |= _sasl_properties(prefix, listener)
    if properties:
        properties |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
        }
    return properties


def scram_arguments(listeners: Mapping[str, Listener]) -> list[str]:
    """Arguments of ``kafka-storage format`` that create the users (KIP-900)."""
    credentials = {
        (mechanism, user): password
        for listener in listeners.values()
        if listener.has_sasl
        for mechanism in listener.mechanisms
        if mechanism.startswith("SCRAM")
        for user, password in listener.users.items()
    }
    return [
        argument
        for (mechanism, user), password in credentials.items()
        for argument in ("--add-scram", _credential(mechanism, user, password))
    ]


def _credential(mechanism: str, user: str, password: str) -> str:
    """The credential of a user, salted here because the tool's own syntax does not take every password."""
    salt = secrets.token_bytes(16)
    algorithm = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, _SCRAM_ITERATIONS)
    fields = {"name": user, "salt": _base64(salt), "saltedpassword": _base64(salted)}
    values = ",".join(f'{name}="{value}"' for name, value in fields.items())
    return f"{mechanism}=[iterations={_SCRAM_ITERATIONS},{values}]"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _tls_properties(prefix: str, name: str, listener: Listener, folder: Path, own: Mapping[str, str]) -> dict[str, str]:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(_key_store(name, folder)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": listener.client_auth,
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/,DEFAULT",
    }
    for store in _STORES:
        if any(option.removeprefix(prefix).startswith(store) for option in own):
            properties = {option: value for option, value in properties.items() if not option.startswith(store)}
    return {prefix + option: value for option, value in properties.items()}


def _sasl_properties(prefix: str, listener: Listener) -> dict[str, str]:
    properties = {"sasl.enabled.mechanisms": ",".join(listener.mechanisms)}
    users = " ".join(f"{quoted('user_' + user)}={quoted(password)}" for user, password in listener.users.items())
    for mechanism in listener.mechanisms:
        login = f"{_PLAIN_LOGIN} {users};" if mechanism == "PLAIN" else _SCRAM_LOGIN
        properties[f"{mechanism.lower()}.sasl.jaas.config"] = login
    return {prefix + option: value for option, value in properties.items()}


def _key_store(listener: str, folder: Path) -> Path:
    return folder / f"{listener.lower()}.pem"


def properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file, ASCII."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return "".join(each if each.isascii() else _unicode_escapes(each) for each in text)


def _unicode_escapes(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
