"""The listeners of the secured clusters of these tests, and the clients that may use them."""

import time
from datetime import UTC, datetime

import pytest

from spark_kafka_sink.testing import Listener
from tests.support.kafka_versions import TEST_BROKER

_DAY_S = 86_400


def days_from_now(days: float) -> datetime:
    return datetime.fromtimestamp(time.time() + days * _DAY_S, UTC)


ODD_USER, ODD_PASSWORD = 'sm ith"s', 'pä"ss,w\\ö=rd € 😀 ﬁ'
USERS = {"client": "client-secret", ODD_USER: ODD_PASSWORD}

SESSION_MS = 4_000
ROTATED = "rotated"
"""A user whose SCRAM password tests change."""
SESSION_MECHANISMS = ("PLAIN", "SCRAM-SHA-512")

LISTENERS: dict[str, Listener] = {
    "TLS": Listener("SSL"),
    "MUTUAL": Listener("SSL", client_auth="required"),
    "SASL": Listener("SASL_PLAINTEXT", users=USERS),
    "SASL_TLS": Listener("SASL_SSL", users=USERS),
    "ONLY_PLAIN": Listener("SASL_PLAINTEXT", mechanisms=("PLAIN",)),
    "SESSIONS": Listener("SASL_SSL", users={**USERS, ROTATED: "password-0"}, mechanisms=SESSION_MECHANISMS),
    # Listeners that a client must refuse.
    "ELSEWHERE": Listener("SSL", host_names=("elsewhere.example",)),
    "EXPIRED": Listener("SSL", not_after=days_from_now(-1)),
    "NOT_YET": Listener("SSL", not_before=days_from_now(1)),
}
# A JVM with many listeners: one network thread each is enough.
PROPERTIES = {
    "num.network.threads": "1",
    "auto.create.topics.enable": "false",
    **{
        f"listener.name.sessions.{mechanism.lower()}.connections.max.reauth.ms": str(SESSION_MS)
        for mechanism in SESSION_MECHANISMS
    },
}

CLIENTS = [
    ("TLS", None),
    ("MUTUAL", None),
    ("SASL", "PLAIN"),
    ("SASL", "SCRAM-SHA-256"),
    ("SASL", "SCRAM-SHA-512"),
    ("SASL_TLS", "PLAIN"),
    ("SASL_TLS", "SCRAM-SHA-256"),
    ("SASL_TLS", "SCRAM-SHA-512"),
]
KAFKAS = ["4.4.0", pytest.param("3.9.1", marks=pytest.mark.slow)]
on_both = pytest.mark.parametrize("secure_kafka", [*KAFKAS, TEST_BROKER], indirect=True, scope="session")
"""On the fixture ``secure_kafka`` and on a TestBroker."""
each_client = pytest.mark.parametrize(
    ("listener", "mechanism"), CLIENTS, ids=["/".join(filter(None, client)) for client in CLIENTS]
)
