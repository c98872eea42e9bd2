"""``server.properties`` of a local Kafka's TLS listeners beside the user's own stores."""

from pathlib import Path

import pytest

from spark_kafka_sink.testing import Listener
from spark_kafka_sink.testing.kafka_security import security_properties

LISTENERS = {"A": Listener("SSL"), "B": Listener("SASL_SSL")}
KEY_STORE = {"ssl.keystore.type", "ssl.keystore.location"}
TRUST_STORE = {"ssl.truststore.type", "ssl.truststore.location"}


def stores(listener: str, own: dict[str, str]) -> set[str]:
    """The options of ours for the listener's stores."""
    prefix = f"listener.name.{listener}."
    names = {each.removeprefix(prefix) for each in security_properties(LISTENERS, Path("/x"), own)}
    return names & (KEY_STORE | TRUST_STORE)


@pytest.mark.parametrize("option", ["ssl.keystore.password", "ssl.key.password", "ssl.keystore.location"])
def test_a_key_store_of_the_user_replaces_that_of_every_listener_as_a_whole(option: str) -> None:
    assert stores("a", {option: "x"}) == stores("b", {option: "x"}) == TRUST_STORE


def test_a_store_for_one_listener_leaves_the_others_theirs() -> None:
    own = {"listener.name.a.ssl.truststore.location": "/own"}
    assert stores("a", own) == KEY_STORE
    assert stores("b", own) == KEY_STORE | TRUST_STORE


def test_other_options_of_tls_leave_the_stores_alone() -> None:
    own = {"ssl.enabled.protocols": "TLSv1.3", "ssl.client.auth": "none", "listener.name.a.ssl.cipher.suites": "x"}
    assert stores("a", own) == stores("b", own) == KEY_STORE | TRUST_STORE
