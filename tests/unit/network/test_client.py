from __future__ import annotations

import gc
import math
import socket
import weakref
from dataclasses import replace

import pytest

from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import IllegalStateError, NetworkError, WrongProtocolError
from spark_kafka_sink.network.client import NoNode
from spark_kafka_sink.network.connection import Connection
from spark_kafka_sink.network.messages import schema
from tests.unit.network.conftest import CONFIG, end_txn_response


def test_not_ready_while_max_in_flight_requests_are_out(make_turns, node):
    turns = make_turns(max_in_flight_requests_per_connection=2)
    turns.make_ready(node)
    turns.send(node)
    assert turns.ready(node)
    turns.send(node)
    assert not turns.ready(node)
    assert turns.client.ready_delay(node, turns.now) == math.inf
    with pytest.raises(IllegalStateError):
        turns.send(node)
    turns.respond()
    assert turns.ready(node)


def test_not_ready_while_the_socket_has_not_taken_the_last_request(turns, node):
    connection = turns.make_ready(node)
    turns.transport.stalled.add(connection)
    turns.send(node)
    assert not turns.ready(node)
    turns.transport.written(connection)
    turns.turn()
    assert turns.ready(node)
    assert turns.client.in_flight(1) == 1


def test_a_lost_connection_fails_everything_in_flight_once(turns, node):
    connection = turns.make_ready(node)
    turns.send(node)
    turns.transport.stalled.add(connection)
    turns.send(node, expects_response=False)
    turns.transport.drop(connection, "Connection reset by peer")
    turns.drop("again", connection)
    turns.turn(100_000)
    assert [type(response.error) for response in turns.responses] == [NetworkError, NetworkError]
    assert all(response.disconnected for response in turns.responses)
    assert turns.client.in_flight(1) == 0


def test_connecting_takes_no_longer_than_the_setup_timeout_which_doubles(turns, node):
    turns.transport.accept_all = False
    timeouts = []
    for _ in range(4):
        turns.ready(node)
        deadline = turns.client.next_deadline(turns.now)
        timeouts.append(deadline - turns.now)
        turns.turn(deadline - turns.now)
        assert turns.transport.open == set()
        turns.turn(turns.client.ready_delay(node, turns.now))
    for timeout, expected in zip(timeouts, (10_000, 20_000, 30_000, 30_000), strict=True):
        assert 0.8 * expected <= timeout <= min(1.2 * expected, 30_000)
    assert "Connection to b:9092 (id: 1) could not be established: no response within" in str(
        turns.client.last_error(1)
    )


def test_failed_connections_are_tried_again_after_a_growing_backoff(turns, node):
    turns.transport.accept_all = False
    delays = []
    for attempt in range(1, 7):
        turns.ready(node)
        turns.drop("Connection refused", attempt)
        delay = turns.client.ready_delay(node, turns.now)
        assert not turns.ready(node)
        assert turns.transport.last_connection() == attempt
        delays.append(delay)
        turns.turn(delay)
    for delay, expected in zip(delays, (50, 100, 200, 400, 800, 1000), strict=True):
        assert 0.8 * expected <= delay <= min(1.2 * expected, 1000)


def test_an_answered_request_ends_the_series_of_failures(turns, node):
    for _ in range(5):
        turns.ready(node)
        turns.drop("Connection refused")
        turns.turn(1000)
    connection = turns.make_ready(node)
    turns.send(node)
    turns.respond()
    assert turns.client.last_error(1) is None
    turns.drop("gone", connection)
    assert turns.client.ready_delay(node, turns.now) <= 60


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"HTTP/1.1 400\r\n", WrongProtocolError, "b:9092 responded like an HTTP server"),
        (b"\x00\x00\x00\x05\x00\x00\x00\x63\x00", NetworkError, "responded to request 99 instead of 1"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x01", NetworkError, r"gave EndTxn v3 a response that cannot be read"),
    ],
)
def test_hostile_bytes_end_the_connection_with_one_clear_error(turns, node, data, error, words):
    connection = turns.make_ready(node)
    turns.send(node)
    turns.send(node)
    turns.transport.receive(connection, data)
    turns.transport.receive(connection, data)
    turns.turn()
    assert [type(response.error) for response in turns.responses] == [error, error]
    assert words in str(turns.responses[0].error)
    assert str(turns.client.last_error(1)) == str(turns.responses[0].error)
    assert connection not in turns.transport.open
    assert turns.client.ready_delay(node, turns.now) > 0


def test_incident_one_frame_before_login_blocked_the_client_for_a_minute(turns, node):
    turns.reach(node)
    connection = turns.transport.last_connection()
    turns.transport.receive(connection, (1024 * 1024 + 1).to_bytes(4, "big"))
    turns.turn()
    error = turns.client.last_error(1)
    assert isinstance(error, WrongProtocolError)
    assert str(error).startswith("b:9092 responded with a frame of 1048577 bytes")
    assert "the limit is 1048576 until the connection is ready" in str(error)
    assert connection not in turns.transport.open
    turns.transport.answer = turns._answer
    turns.turn(10_000)
    connection = turns.make_ready(node)
    turns.send(node)
    turns.transport.receive(connection, (90 * 1024 * 1024).to_bytes(4, "big"))
    turns.turn()
    assert connection in turns.transport.open


def test_bytes_that_nobody_asked_for_end_the_connection(turns, node):
    connection = turns.make_ready(node)
    turns.transport.receive(connection, b"\x00\x00\x00\x04\x00\x00\x00\x01")
    turns.turn()
    assert "b:9092 (id: 1) sent a frame that no request asked for" in str(turns.client.last_error(1))


def test_the_end_of_a_connection_says_how_far_it_had_come(turns, node):
    turns.reach(node)
    turns.drop("EOF", 1)
    assert str(turns.client.last_error(1)) == (
        "Connection to b:9092 (id: 1) ended in its handshake: EOF. Is it a listener that expects TLS? "
        "See security.protocol"
    )
    turns.transport.answer = turns._answer
    turns.turn(1000)
    connection = turns.make_ready(node)
    turns.send(node)
    turns.drop("EOF", connection)
    assert "ended before it responded to the first request: EOF. A listener that expects SASL" in str(
        turns.client.last_error(1)
    )
    turns.turn(1000)
    connection = turns.make_ready(node)
    turns.send(node)
    turns.transport.respond(turns.transport.requests.pop(), end_txn_response())
    turns.send(node)
    turns.turn()
    turns.drop("EOF", connection)
    assert str(turns.client.last_error(1)) == "Connection to b:9092 (id: 1) was lost: EOF"


def test_a_close_after_the_first_step_of_sasl_names_the_login(node):
    def steps():
        yield schema("api_versions", 0).ApiVersionsRequest()
        yield schema("sasl_handshake", 1).SaslHandshakeRequest(mechanism="PLAIN")

    config = replace(CONFIG, security_protocol="SASL_PLAINTEXT")
    connection = Connection(1, node, config, steps(), setup_deadline=0)
    connection.connected(None, 0)
    assert "expects TLS" in str(connection.closed_error("EOF"))
    assert list(connection.receive(b"\0\0\0\4\0\0\0\0", 0)) == []
    assert "see sasl.mechanism and sasl.jaas.config" in str(connection.closed_error("EOF"))


def test_a_connection_that_nobody_uses_is_closed_without_a_failure(make_turns, turns, node):
    connection = turns.make_ready(node)
    turns.send(node)
    turns.clock.advance(1000)
    turns.respond()
    assert turns.client.next_deadline(turns.now) == 541_000
    turns.turn(540_000)
    assert connection not in turns.transport.open
    assert turns.client.last_error(1) is None
    assert turns.client.drain_disconnects() == []
    assert turns.client.next_deadline(turns.now) == math.inf
    turns.make_ready(node)
    kept = make_turns(connections_max_idle_ms=-1)
    connection = kept.make_ready(node)
    kept.turn(10**9)
    assert connection in kept.transport.open


def test_a_node_that_moved_is_reconnected_at_its_new_address(turns, node):
    old = turns.make_ready(node)
    turns.send(node)
    moved = replace(node, port=9093)
    assert not turns.ready(moved)
    assert turns.responses == []
    turns.turn()
    assert turns.transport.addresses[2] == ("b", 9093)
    assert old not in turns.transport.open
    assert [response.disconnected for response in turns.responses] == [True]
    assert turns.ready(moved)


ADDRESSES = [(socket.AF_INET, (f"192.0.2.{number}", 9092)) for number in (1, 2, 3)]


@pytest.fixture
def taken(turns, monkeypatch) -> list[str]:
    """The host of ``turns`` has three addresses; the list has those that connections took."""
    hosts: list[str] = []
    connect = turns.transport.connect

    def connect_by_address(connection_id, host, port, addresses):
        if not addresses:
            addresses.fill(ADDRESSES)
        hosts.append(addresses.take()[1][0])
        connect(connection_id, host, port, addresses)

    monkeypatch.setattr(turns.transport, "connect", connect_by_address)
    return hosts


def attempt(turns, node, peer: str) -> None:
    """One attempt to connect, whose peer accepts and is no Kafka broker."""
    turns.reach(node)
    if peer == "hangs":
        turns.turn(31_000)
    elif peer == "closes":
        turns.drop("the broker closed the connection")
    else:
        turns.transport.receive(turns.transport.last_connection(), b"HTTP/1.1 400 Bad Request")
        turns.turn()
    turns.clock.advance(1_000)
    turns.transport.answer = turns._answer


@pytest.mark.parametrize("peer", ["closes", "hangs"])
def test_a_peer_that_accepts_and_is_no_broker_does_not_get_the_next_attempt(turns, node, taken, peer):
    attempt(turns, node, peer)
    attempt(turns, node, peer)
    turns.make_ready(node)
    assert taken == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_the_address_of_a_ready_connection_that_was_lost_does_not_get_the_next_attempt(turns, node, taken):
    for _ in range(4):
        turns.make_ready(node)
        turns.drop("gone")
        turns.clock.advance(1_000)
    assert taken == ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"], "two that shake hands and hang up hide none"


def test_a_foreign_server_at_the_first_of_three_addresses_is_no_verdict_on_the_host(turns, node, taken):
    for _ in range(2):
        attempt(turns, node, "is foreign")
        ((_node, error),) = turns.client.drain_disconnects()
        assert type(error) is NetworkError
        assert "HTTP server" in str(error)
        assert error.failed_step is not None
    turns.make_ready(node)
    assert taken == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_foreign_servers_at_all_addresses_are_told_as_such(turns, node, taken):
    for _ in ADDRESSES:
        attempt(turns, node, "is foreign")
    ((_node, error),) = turns.client.drain_disconnects()
    assert isinstance(error, WrongProtocolError)
    picked = turns.client.pick([node], turns.now)
    assert isinstance(picked, NoNode)
    assert isinstance(picked.error, WrongProtocolError)


def test_a_request_goes_to_the_least_loaded_node_and_a_full_one_is_not_picked(make_turns):
    turns = make_turns(max_in_flight_requests_per_connection=2)
    nodes = [Node(i, f"b{i}", 9092) for i in range(2)]
    pick = lambda: turns.client.pick(nodes, turns.now)  # noqa: E731
    turns.make_ready(nodes[0])
    turns.make_ready(nodes[1])
    turns.send(nodes[0])
    assert pick() == nodes[1]
    turns.send(nodes[1])
    turns.send(nodes[1])
    assert pick() == nodes[0]
    turns.send(nodes[0])
    assert pick() == NoNode(math.inf), "only a response makes room"


def test_a_connection_is_begun_to_the_node_with_the_oldest_attempt_and_to_one_at_a_time(turns):
    nodes = [Node(i, f"b{i}", 9092) for i in range(3)]
    turns.transport.accept_all = False
    turns.ready(nodes[2])
    turns.drop("refused", 1)
    turns.turn(2000)
    assert turns.client.pick(nodes, turns.now) == NoNode(math.inf)
    assert turns.transport.addresses[2] != ("b2", 9092), "a node never tried comes before one that failed"
    assert turns.client.pick(nodes, turns.now) == NoNode(math.inf), "the others may be tried, but not now"
    assert turns.transport.last_connection() == 2
    turns.transport.accept(2)
    turns.turn()
    assert turns.client.pick(nodes, turns.now) in nodes[:2]


def test_while_all_nodes_are_in_backoff_the_first_that_ends_is_the_time_to_look_again(turns):
    nodes = [Node(i, f"b{i}", 9092) for i in range(2)]
    turns.transport.accept_all = False
    for node in nodes:
        turns.ready(node)
        turns.transport.drop(turns.transport.last_connection(), "refused")
        turns.turn(10)
    retry_at = turns.now + min(turns.client.ready_delay(node, turns.now) for node in nodes)
    assert turns.client.pick(nodes, turns.now) == NoNode(retry_at)
    turns.turn(retry_at - turns.now)
    assert turns.client.pick(nodes, turns.now) == NoNode(math.inf)
    assert turns.transport.last_connection() == 3
    assert turns.client.pick([], turns.now) == NoNode(math.inf)


@pytest.mark.parametrize("is_answer", [True, False], ids=["an unreadable answer", "another request's answer"])
def test_an_error_that_is_kept_keeps_no_batch(turns, node, is_answer):
    """A log handler kept the warning, its error kept the frames it came through, and these kept the batches' bytes."""

    class Batch:
        def completed(self, response):
            pass

    connection = turns.make_ready(node)
    batch = Batch()
    still_there = weakref.ref(batch)
    turns.send(node, on_complete=batch.completed)
    del batch
    correlation_id = turns.transport.requests.pop().correlation_id + (not is_answer)
    turns.transport.receive(connection, b"\0\0\0\7" + correlation_id.to_bytes(4, "big") + b"???")
    turns.turn()
    (kept,) = turns.client.drain_disconnects()
    gc.collect()
    assert still_there() is None, kept
