"""A handshake that waits for a login blocks nothing else, and not without end."""

from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import KafkaTimeoutError, LoginError
from spark_kafka_sink.network.login import sasl
from spark_kafka_sink.network.login.sasl import LoginStep
from spark_kafka_sink.network.messages import schema
from tests.support.scripted_network import api_versions_response

WHAT = "a token of sasl.oauthbearer.token.endpoint.url"
RANGES = {0: (3, 13), 17: (0, 1), 18: (0, 4), 26: (0, 5), 36: (0, 2)}


class Tokens:
    """A mechanism whose messages come from a login. ``steps``: what its exchanges wait for, in order."""

    def __init__(self, _config):
        self.steps: list[LoginStep[bytes]] = []
        self.is_closed = False

    def exchange(self, host):
        for _ in range(2):
            step = LoginStep(WHAT)
            self.steps.append(step)
            yield step
            yield step.result()

    def close(self):
        self.is_closed = True


@pytest.fixture
def turns(make_turns, monkeypatch):
    monkeypatch.setattr(sasl, "built_in", {"TOKENS": Tokens}.get)
    turns = make_turns(RANGES, security_protocol="SASL_PLAINTEXT", sasl_mechanism="TOKENS")
    turns.mechanism = turns.client._channels._mechanism
    turns.sent = []

    def answer(request):
        turns.sent.append(request.entity().auth_bytes if request.api == "sasl_authenticate" else request.api)
        match request.api:
            case "api_versions":
                return api_versions_response(request, turns.ranges)
            case "sasl_handshake":
                return request.module.response.SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=())
            case "sasl_authenticate":
                return schema("sasl_authenticate", 2).SaslAuthenticateResponse(
                    error_code=ErrorCode.none, error_message=None, auth_bytes=b"", session_lifetime=timedelta()
                )
        return None

    turns.transport.answer = answer
    return turns


def resumed(turns):
    """One iteration of the loop after a wake-up."""
    turns.client.handle([], turns.now)
    turns.turn()


def test_a_handshake_goes_on_when_its_login_is_done(turns, node):
    turns.ready(node)
    turns.turn()
    assert turns.sent == ["api_versions"]
    assert turns.transport.wakeups == 0
    turns.mechanism.steps[0].succeed(b"first")
    assert turns.transport.wakeups == 1
    resumed(turns)
    assert turns.sent == ["api_versions", "sasl_handshake", b"first"]
    turns.mechanism.steps[1].succeed(b"second")
    resumed(turns)
    assert turns.sent[-1] == b"second"
    assert turns.ready(node)


def test_a_failed_login_is_the_error_of_the_broker_and_is_not_retried_at_once(turns, node):
    turns.ready(node)
    turns.turn()
    turns.mechanism.steps[0].fail(LoginError(f"{WHAT} did not respond"))
    resumed(turns)
    refusal = turns.client.authentication_error(node, turns.now)
    assert (type(refusal), str(refusal)) == (LoginError, f"{WHAT} did not respond")
    assert not turns.ready(node)
    turns.turn(1_000)
    assert not turns.ready(node)
    assert len(turns.mechanism.steps) == 1


def test_a_login_without_end_ends_with_request_timeout_and_names_what_it_waits_for(turns, node):
    turns.ready(node)
    turns.turn()
    due = turns.client.next_deadline(turns.now)
    assert due == turns.now + 30_000
    turns.turn(29_999)
    assert turns.client.last_error(1) is None
    turns.turn(1)
    ((_, error),) = turns.client.drain_disconnects()
    assert type(error) is KafkaTimeoutError
    assert str(error) == f"The connection to b:9092 (id: 1) was waiting 30000 ms (request.timeout.ms) for {WHAT}"
    turns.mechanism.steps[0].succeed(b"too late")
    resumed(turns)
    assert turns.sent == ["api_versions"]


def test_a_broker_that_ends_the_connection_meanwhile_is_not_said_to_refuse_the_login(turns, node):
    turns.ready(node)
    turns.turn()
    turns.transport.drop(turns.transport.last_connection(), "the broker closed the connection")
    turns.turn()
    assert str(turns.client.last_error(1)) == (
        f"Connection to node 1 (b:9092) ended while this client was waiting for {WHAT}: the broker closed the "
        "connection"
    )


def test_who_waits_for_a_step_that_is_done_already_is_woken():
    class Sleeper:
        woken = 0

        def wakeup(self):
            self.woken += 1

    step, early, late = LoginStep(WHAT), Sleeper(), Sleeper()
    step.wake_when_done(early)
    step.succeed(1)
    step.wake_when_done(late)
    assert (early.woken, late.woken, step.result()) == (1, 1, 1)
