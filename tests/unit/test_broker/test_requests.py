"""The log of requests a test asserts on."""

from __future__ import annotations

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.contract.plain_client import PlainClient


def test_requests_are_logged_with_version_node_connection_and_client(broker: TestBroker, client: PlainClient) -> None:
    client.ask("Metadata", 9, topics=[])
    with PlainClient(broker.bootstrap_servers) as other:
        other.ask("Metadata", 12, topics=[])

    first, second = broker.requests

    assert (first.api, first.version, first.node, first.client_id) == ("Metadata", 9, 1, "plain")
    assert second.version == 12
    assert first.connection != second.connection


def test_waiting_for_requests_that_do_not_come_gives_up(broker: TestBroker, client: PlainClient) -> None:
    client.ask("Metadata", 9, topics=[])
    with pytest.raises(TimeoutError, match="1 of 2 Metadata"):
        broker.requests.wait_for("Metadata", 2, timeout_s=0.01)


def test_clear_forgets(broker: TestBroker, client: PlainClient) -> None:
    client.ask("Metadata", 9, topics=[])
    broker.requests.clear()
    assert list(broker.requests) == []
