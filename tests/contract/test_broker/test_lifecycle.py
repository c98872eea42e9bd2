"""Starting, stopping, and what must not be left behind."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest

from spark_kafka_sink.errors import ConfigError, IllegalStateError
from spark_kafka_sink.testing import TestBroker
from spark_kafka_sink.testing.broker.acceptor import LOOPBACK, Acceptor
from spark_kafka_sink.testing.broker.authentication import AtListener, AuthenticationLog
from spark_kafka_sink.testing.listener import Listener
from tests.contract.plain_client import PlainClient, batch
from tests.support.waiting import DEADLINE_S


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_after_it_was_closed_with_requests_under_way() -> None:
    threads, files = threading.active_count(), open_files()
    with TestBroker(nodes=2) as broker:
        broker.create_topic("t")
        broker.hold_followers("t", 0)
        broker.faults.delay("Metadata", 60_000)
        waiting, slow, idle = (PlainClient(broker.bootstrap_servers) for _ in range(3))
        waiting.tell_produce("t", batch([b"x"]), timeout=60_000)
        slow.tell("Metadata", 9, topics=[])
        broker.requests.wait_for("Produce")
        broker.requests.wait_for("Metadata")
    assert all(client.is_hung_up() for client in (waiting, slow, idle))
    for client in (waiting, slow, idle):
        client.close()
    assert (threading.active_count(), open_files()) == (threads, files)


def test_closing_twice_does_nothing() -> None:
    with TestBroker() as broker:
        broker.close()


def test_a_closed_broker_says_so() -> None:
    with TestBroker() as broker:
        pass
    with pytest.raises(IllegalStateError, match="closed"):
        broker.create_topic("t")


def test_a_broker_that_was_never_started_says_how() -> None:
    with pytest.raises(IllegalStateError, match="with TestBroker"):
        TestBroker().create_topic("t")


def test_bad_settings_are_named_all_at_once() -> None:
    with pytest.raises(ConfigError) as failure:
        TestBroker(config={"min.insync.replica": 2, "num.partitions": "many"})
    assert len(failure.value.faults) == 2
    assert "did you mean min.insync.replicas?" in str(failure.value)


def test_an_unknown_release_is_named() -> None:
    with pytest.raises(ConfigError, match=r"2\.8, 3\.5, 3\.9, 4\.1"):
        TestBroker(like="1.0")


def test_a_socket_that_sends_nothing_does_not_stop_others() -> None:
    with TestBroker() as broker:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        with socket.create_connection((host, int(port))), PlainClient(broker.bootstrap_servers) as client:
            assert client.ask("Metadata", 9, topics=[]).brokers


@pytest.mark.parametrize("steps", range(10))
def test_incident_a_connection_accepted_while_its_node_was_killed_stayed_open_and_silent(steps: int) -> None:
    async def first_byte_of_a_killed_node() -> bytes:
        no_requests: Any = None
        at = AtListener(1, "PLAINTEXT", Listener("PLAINTEXT"), AuthenticationLog())
        listener = Acceptor(at, 0, no_requests, itertools.count(), 1)
        listener.open()
        await asyncio.sleep(0.01)  # it waits for a connection
        with socket.create_connection((LOOPBACK, listener.port)) as client:
            for _ in range(steps):
                await asyncio.sleep(0)
            listener.close()
            client.setblocking(False)
            with suppress(ConnectionResetError):
                return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), DEADLINE_S)
            return b""

    assert asyncio.run(first_byte_of_a_killed_node()) == b""
