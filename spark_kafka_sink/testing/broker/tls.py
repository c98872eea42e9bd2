"""The broker's side of TLS."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping

from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import Listener


def server_contexts(
    listeners: Mapping[str, Listener], authority: CertificateAuthority | None
) -> dict[str, ssl.SSLContext]:
    """For each listener with TLS."""
    if authority is None:
        return {}
    return {name: _server_context(each, authority) for name, each in listeners.items() if each.has_tls}


def _server_context(listener: Listener, authority: CertificateAuthority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # ssl reads keys from files only
        file.write(listener.key_store(authority))
        file.flush()
        context.load_cert_chain(file.name)
    context.load_verify_locations(cadata=authority.certificate)
    context.verify_mode = {
        "none": ssl.CERT_NONE,
        "requested": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }[listener.client_auth]
    return context
