"""Warnings where a secret would cross the network without TLS. Loopback addresses do not count as a network."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from spark_kafka_sink.common.config.draft import Draft

_SENT_AS_IT_IS: Final = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""SCRAM and GSSAPI prove that the client knows a secret, and do not send it."""


def clear_text_login(draft: Draft) -> None:
    """Warns about PLAIN and OAUTHBEARER with SASL_PLAINTEXT."""
    secret = _SENT_AS_IT_IS.get(draft.values["sasl.mechanism"])
    if secret is None or draft.values["security.protocol"] != "SASL_PLAINTEXT":
        return
    if not all(_is_loopback(host) for host, _ in draft.values["bootstrap.servers"]):
        draft.caution(
            "security.protocol", f"has no TLS, so the {secret} crosses the network in clear text; write SASL_SSL."
        )


def clear_text_request(draft: Draft, name: str, url: str) -> None:
    """Warns if ``url``, of the option ``name``, has no TLS. Call it for a request that has credentials."""
    parts = urlsplit(url)
    if parts.scheme.lower() == "http" and not _is_loopback(parts.hostname or ""):
        draft.caution(
            name, "begins with http://, so the credentials cross the network in clear text; write an https:// URL."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
