"""PEM as users give it: in a file, inline, on one line, with ``\\n`` for line ends, text around it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from asn1crypto import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.errors import ConfigError

_BLOCK = re.compile(rb"-+BEGIN ([A-Z0-9 ]+)-+(.*?)-+END \1-+", re.DOTALL)
# Of encrypted keys in OpenSSL's old format: `Proc-Type: 4,ENCRYPTED` and `DEK-Info: AES-256-CBC,<salt>`.
_HEADER = re.compile(rb"\s*([\w-]+:\s*\S+)")
_BEGIN = b"-BEGIN "


def is_pem(content: bytes) -> bool:
    return _BEGIN in content


def certificates(name: str, content: bytes) -> list[bytes]:
    """The certificates, in DER. ``name`` begins the errors: option and file."""
    found = []
    for label, body in _blocks(name, content):
        if label.endswith(b"CERTIFICATE"):
            try:
                # A certificate that openssl marked as trusted has more behind its DER.
                found.append(x509.Certificate.load(base64.b64decode(b"".join(body.split()), validate=True)).dump())
            except (binascii.Error, ValueError):
                raise ConfigError([f"{name}: certificate {len(found) + 1} is truncated or damaged."]) from None
    if not found:
        raise ConfigError([f"{name} has no certificate (a block -----BEGIN CERTIFICATE-----)."])
    return found


def private_key(name: str, content: bytes, password: Password | None) -> PrivateKeyTypes:
    """The private key: PKCS8 or OpenSSL's old formats, plain or encrypted with ``ssl.key.password``."""
    keys = [(label, body) for label, body in _blocks(name, content) if label.endswith(b"PRIVATE KEY")]
    if len(keys) != 1:
        count = f"{len(keys)} private keys" if keys else "no private key (a block -----BEGIN PRIVATE KEY-----)"
        raise ConfigError([f"{name} has {count}; it must have one."])
    label, body = keys[0]
    encrypted = label.startswith(b"ENCRYPTED") or b"ENCRYPTED" in body
    if encrypted and password is None:
        raise ConfigError([f"{name} has an encrypted private key; give its password as ssl.key.password."])
    secret = password.value.encode() if encrypted and password is not None else None
    try:
        return load_pem_private_key(_laid_out(label, body), secret)
    except Exception:  # cryptography raises several; their texts may quote the key
        wrong_password = "ssl.key.password is wrong, or the key is damaged"
        fault = wrong_password if encrypted else "it is truncated, damaged or of an unknown kind"
        raise ConfigError([f"{name}: the private key cannot be read: {fault}."]) from None


def _blocks(name: str, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Label and body of each block. A last block without its end is an error: the file may be half written."""
    content = content.replace(b"\\r", b"").replace(b"\\n", b"\n")
    end = 0
    for match in _BLOCK.finditer(content):
        end = match.end()
        yield match[1], match[2]
    if end and is_pem(content[end:]):
        raise ConfigError([f"{name} is truncated: its last -----BEGIN has no -----END."])


def _laid_out(label: bytes, body: bytes) -> bytes:
    """The block in lines, as parsers want it."""
    headers = []
    while (header := _HEADER.match(body)) is not None:
        headers.append(header[1])
        body = body[header.end() :]
    data = b"".join(body.split())
    lines = [data[start : start + 64] for start in range(0, len(data), 64)]
    return b"\n".join([
        b"-----BEGIN " + label + b"-----", *headers, *([b""] if headers else []), *lines,
        b"-----END " + label + b"-----", b"",
    ])  # fmt: skip
