"""A connection that waits for its login, which blocks nothing else and not without end, and that logs in again before
its session ends (KIP-368).
"""

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network.login import sasl
from spark_kafka_sink.network.login.sasl import LoginStep
from tests.support.scripted_network import api_versions_response

RANGES = {0: (3, 13), 17: (0, 1), 18: (0, 4), 26: (0, 5), 36: (0, 2)}
SASL = ["sasl_handshake", "sasl_authenticate"]
LIFETIME_MS = 10_000
WHAT = "a token of sasl.oauthbearer.token.endpoint.url"


class Password:
    """A mechanism of one message, read at each authentication. ``step``: what the next one waits for."""

    def __init__(self, _config):
        self.password = b"old"
        self.step = None

    def exchange(self, host):
        if self.step is not None:
            yield self.step
            self.step.result()
        yield self.password

    def close(self):
        pass


@pytest.fixture
def turns(make_turns, monkeypatch):
    """A broker that knows the password ``turns.password``; it responds to SASL while ``turns.is_quiet`` is False."""
    monkeypatch.setattr(sasl, "built_in", {"PASSWORD": Password}.get)
    turns = make_turns(RANGES, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PASSWORD")
    turns.mechanism = turns.client._channels._mechanism
    turns.sent, turns.password, turns.is_quiet, turns.lifetime_ms = [], b"old", False, LIFETIME_MS

    def answer(request):
        turns.sent.append(request.api)
        if request.api == "api_versions":
            return api_versions_response(request, turns.ranges)
        return None if turns.is_quiet or request.api not in SASL else sasl_response(turns, request)

    turns.transport.answer = answer
    return turns


def sasl_response(turns, request):
    if request.api == "sasl_handshake":
        return request.response()
    refused = {"error_code": ErrorCode.sasl_authentication_failed, "error_message": "changed"}
    changed = refused if request.entity().auth_bytes != turns.password else {}
    return request.response(**changed, session_lifetime=turns.lifetime_ms)


def due(turns):
    """A request at which re-authentication begins."""
    turns.clock.advance(0.95 * LIFETIME_MS)
    turns.sent.clear()
    return turns


def resumed(turns):
    """One iteration of the loop after a wake-up."""
    turns.client.handle([], turns.now)
    turns.turn()


@pytest.fixture
def login(turns, node):
    """What the handshake of the first connection waits for."""
    turns.mechanism.step = LoginStep(WHAT)
    turns.ready(node)
    turns.turn()
    assert turns.sent == ["api_versions"]
    return turns.mechanism.step


def test_a_handshake_goes_on_when_its_login_is_done(turns, node, login):
    assert turns.transport.wakeups == 0
    login.succeed(b"")
    assert turns.transport.wakeups == 1
    resumed(turns)
    assert turns.sent == ["api_versions", *SASL]
    assert turns.ready(node)


def test_a_broker_that_ends_the_connection_meanwhile_is_not_said_to_refuse_the_login(turns, login):
    turns.drop("the broker closed the connection")
    assert str(turns.client.last_error(1)) == (
        f"Connection to b:9092 (id: 1) ended while this client was waiting for {WHAT}: the broker closed the connection"
    )


def test_a_send_past_85_to_95_percent_of_the_session_logs_in_again_without_apiversions(turns, node):
    connection = turns.make_ready(node)
    turns.turn(0.85 * LIFETIME_MS - 1)
    assert turns.ready(node)
    assert turns.sent == ["api_versions", *SASL]
    turns.turn(0.1 * LIFETIME_MS + 1)
    assert not turns.ready(node)
    turns.turn()
    assert turns.ready(node)
    assert turns.sent == ["api_versions", *SASL, *SASL]
    counters = turns.client.counters
    assert (counters.authentications, counters.reauthentications, counters.reauthentication_ms) == (1, 1, 0)
    assert turns.transport.last_connection() == connection
    turns.send(node)
    assert turns.sent[-1] == "end_txn"


def test_the_moment_is_another_one_for_each_session(turns, node):
    moments = set()
    turns.make_ready(node)
    for _ in range(5):
        began = turns.now
        while turns.ready(node):
            turns.clock.advance(10)
        moments.add(turns.now - began)
        turns.turn()
    assert len(moments) > 3
    assert all(0.85 * LIFETIME_MS <= moment <= 0.95 * LIFETIME_MS + 10 for moment in moments)


def test_a_session_of_less_than_a_second_is_not_ended_earlier_as_brokers_refuse_that(turns, node):
    turns.make_ready(node)
    turns.lifetime_ms = 500
    due(turns)
    assert not turns.ready(node)
    turns.turn()
    turns.sent.clear()
    turns.turn(999)
    assert turns.ready(node)
    assert turns.sent == []
    turns.turn(1)
    assert not turns.ready(node)
    turns.turn()
    assert turns.ready(node)
    assert turns.sent == SASL


def test_a_connection_that_is_not_used_waits_for_its_next_use(turns, node):
    turns.make_ready(node)
    due(turns).turn(3 * LIFETIME_MS)
    assert turns.sent == []
    assert not turns.ready(node)
    turns.turn()
    assert turns.ready(node)
    assert turns.sent == SASL


def test_requests_in_flight_complete_before_it_and_count_until_then(turns, node):
    turns.make_ready(node)
    turns.send(node)
    turns.send(node)
    due(turns).is_quiet = True
    assert not turns.ready(node)
    assert turns.sent == ["sasl_handshake"]
    assert turns.client.in_flight(1) == 2
    turns.respond()
    assert turns.client.in_flight(1) == 1
    turns.respond()
    assert [response.error for response in turns.responses] == [None, None]
    turns.turn(70)
    assert turns.client.in_flight(1) == 0
    assert not turns.ready(node)
    turns.is_quiet = False
    turns.respond(sasl_response(turns, turns.transport.requests[0]))
    assert turns.ready(node)
    assert turns.sent == SASL
    assert turns.client.counters.longest_reauthentication_ms == 70


def test_it_waits_for_a_token_while_requests_complete(turns, node):
    turns.make_ready(node)
    turns.send(node)
    turns.mechanism.step = LoginStep(WHAT)
    due(turns).ready(node)
    assert turns.sent == []
    turns.respond()
    assert turns.responses[0].error is None
    turns.mechanism.step.succeed(b"")
    resumed(turns)
    assert turns.sent == SASL
    assert turns.ready(node)


def test_a_broker_that_does_not_respond_to_it_is_a_timeout(turns, node):
    turns.make_ready(node)
    due(turns).is_quiet = True
    turns.ready(node)
    turns.turn(30_000)
    ((_, error),) = turns.client.drain_disconnects()
    assert type(error) is KafkaTimeoutError
    assert "SaslHandshake" in str(error)
