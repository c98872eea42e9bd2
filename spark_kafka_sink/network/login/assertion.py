"""The assertion of a JWT bearer grant: from a file, or signed here (RFC 7523; Java: ``DefaultAssertionCreator``)."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.text_file import read_bytes, read_text

_OPTION: Final = "sasl.oauthbearer.assertion."
_P256_BYTES: Final = 32


def assertion(config: ProducerConfig, now: int) -> str:
    """A JWT, at ``now`` (ms since 1970). Files are read each time. Raises ``LoginError``."""
    finished = config.sasl_oauthbearer_assertion_file
    if finished is not None:
        return read_text(f"{_OPTION}file {finished}", finished)
    header, payload = _template(config)
    header |= {"alg": config.sasl_oauthbearer_assertion_algorithm, "typ": "JWT"}
    seconds = now // 1000
    payload |= {
        "iat": seconds,
        "exp": seconds + config.sasl_oauthbearer_assertion_claim_exp_seconds,
        "nbf": seconds - config.sasl_oauthbearer_assertion_claim_nbf_seconds,
    }
    if config.sasl_oauthbearer_assertion_claim_jti_include:
        payload["jti"] = str(uuid.uuid4())
    content = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (header, payload))
    return f"{content}.{_encoded(_signature(config, content.encode()))}"


def _template(config: ProducerConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and payload: the claims of options, then those of the file."""
    claims = {
        "aud": config.sasl_oauthbearer_assertion_claim_aud,
        "iss": config.sasl_oauthbearer_assertion_claim_iss,
        "sub": config.sasl_oauthbearer_assertion_claim_sub,
    }
    payload: dict[str, Any] = {name: value for name, value in claims.items() if value is not None}
    path = config.sasl_oauthbearer_assertion_template_file
    if path is None:
        return {}, payload
    name = f"{_OPTION}template.file {path}"
    try:
        template = json.loads(read_text(name, path))
        header, given = template.get("header") or {}, template.get("payload") or {}
        return dict(header), payload | dict(given)
    except (ValueError, AttributeError, TypeError):
        raise LoginError(f'{name} must be a JSON object: {{"header": {{…}}, "payload": {{…}}}}') from None


def _signature(config: ProducerConfig, content: bytes) -> bytes:
    path = config.sasl_oauthbearer_assertion_private_key_file
    name = f"{_OPTION}private.key.file {path}"
    key = _private_key(name, config)
    algorithm = config.sasl_oauthbearer_assertion_algorithm
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        numbers = decode_dss_signature(key.sign(content, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(_P256_BYTES, "big") for number in numbers)
    needed = "an RSA key" if algorithm == "RS256" else "a key of the curve P-256"
    raise LoginError(f"{name} is not {needed}, which {_OPTION}algorithm={algorithm} needs")


def _private_key(name: str, config: ProducerConfig) -> PrivateKeyTypes:
    """PEM, DER, or the base64 of DER without lines around it, which Java reads."""
    assert config.sasl_oauthbearer_assertion_private_key_file is not None
    passphrase = config.sasl_oauthbearer_assertion_private_key_passphrase
    password = passphrase.value.encode() if passphrase is not None else None
    content = read_bytes(name, config.sasl_oauthbearer_assertion_private_key_file)
    try:
        if b"-----BEGIN" in content:
            return load_pem_private_key(content, password)
        der = content if content.startswith(b"\x30") else base64.b64decode(content, validate=False)
        return load_der_private_key(der, password)
    except Exception:  # cryptography raises several; their texts may quote the key
        about = f"{_OPTION}private.key.passphrase"
        fault = f"{about} is wrong, or the key is damaged" if password else f"it is damaged, or needs {about}"
        raise LoginError(f"{name} cannot be read as a private key: {fault}") from None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
