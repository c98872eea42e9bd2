"""OAUTHBEARER's messages byte for byte, and one login for all clients of a process with the same credentials."""

import threading
from types import SimpleNamespace

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.oauthbearer import OAuthBearer
from spark_kafka_sink.network.login.sasl import LoginStep
from spark_kafka_sink.network.login.token_login import Token
from tests.support.child_processes import failure_in_fork
from tests.support.waiting import DEADLINE_S

OAUTH = "org.apache.kafka.common.security.oauthbearer."


def configured(secret, more=""):
    return ProducerConfig.parse({
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{OAUTH}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1",
        "sasl.jaas.config": f'{OAUTH}OAuthBearerLoginModule required clientId="a" clientSecret="{secret}" {more};',
    })  # fmt: skip


class Source:
    what = "a token of the test"

    def __init__(self, error=None, token="token"):
        self.fetches = 0
        self.error = error
        self.token = token

    def fetch(self):
        self.fetches += 1
        if self.error is not None:
            raise self.error
        return Token(f"{self.token}{self.fetches}", 1e15)


def next_message(exchange, response=None):
    """The exchange's next message for the broker, after waits for login threads."""
    step = next(exchange) if response is None else exchange.send(response)
    while isinstance(step, LoginStep):
        done = threading.Event()
        step.wake_when_done(SimpleNamespace(wakeup=done.set))
        assert done.wait(DEADLINE_S)
        step = exchange.send(b"")
    return step


def first_message(mechanism):
    exchange = mechanism.exchange("b")
    return exchange, next_message(exchange)


def test_an_accepted_token_ends_the_exchange_and_extensions_go_with_it():
    mechanism = OAuthBearer(configured("one", 'extension_cluster="c 1" scope="s"'), Source())
    exchange, message = first_message(mechanism)
    assert message == b"n,,\x01auth=Bearer token1\x01cluster=c 1\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")
    mechanism.close()


def test_incident_an_extension_from_a_placeholder_could_add_fields_to_the_message(monkeypatch):
    mechanism = OAuthBearer(configured("five", 'extension_cluster="${env:OAUTH_CLUSTER}"'), Source())
    monkeypatch.setenv("OAUTH_CLUSTER", "c\x01auth=Bearer hunter2")
    with pytest.raises(SaslAuthenticationError, match=r"^sasl\.jaas\.config has extension_cluster, whose") as raised:
        first_message(mechanism)
    assert "hunter2" not in str(raised.value)
    mechanism.close()
    mechanism = OAuthBearer(configured("six", 'extension_cluster="${env:OAUTH_CLUSTER}"'), Source())
    monkeypatch.setenv("OAUTH_CLUSTER", "c 2")
    assert first_message(mechanism)[1] == b"n,,\x01auth=Bearer token1\x01cluster=c 2\x01\x01"
    mechanism.close()


@pytest.mark.parametrize("token", ["t\x01host=evil\x01", "two words", "t\n", "=t", "tök"])
def test_incident_a_token_with_separators_added_fields_to_the_message(token):
    mechanism = OAuthBearer(configured("seven"), Source(token=token))
    with pytest.raises(LoginError, match=r"^a token of the test has characters that no token may have") as raised:
        first_message(mechanism)
    assert token not in str(raised.value)
    mechanism.close()


def test_a_refused_token_is_answered_with_one_byte_and_then_an_error_with_the_brokers_reason():
    mechanism = OAuthBearer(configured("two"), Source())
    exchange, _ = first_message(mechanism)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):
        exchange.send(b"")
    mechanism.close()


def test_clients_with_the_same_credentials_share_one_login_that_the_last_one_ends():
    sources, before = [Source(), Source(), Source()], set(threading.enumerate())
    first, second = (OAuthBearer(configured("four"), source) for source in sources[:2])
    assert first_message(first)[1] == first_message(second)[1]
    first.close()
    first.close()
    assert first_message(second)[1] == b"n,,\x01auth=Bearer token1\x01\x01"
    assert [source.fetches for source in sources] == [1, 0, 0]
    (thread,) = set(threading.enumerate()) - before
    second.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    third = OAuthBearer(configured("four"), sources[2])
    first_message(third)
    third.close()
    assert sources[2].fetches == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_logs_in_anew_because_its_parents_thread_does_not_run_there():
    mechanism = OAuthBearer(configured("nine"), Source(token="parent"))
    first_message(mechanism)

    def log_in_anew():
        mechanism.close()
        message = first_message(OAuthBearer(configured("nine"), Source(token="child")))[1]
        assert message == b"n,,\x01auth=Bearer child1\x01\x01"

    assert failure_in_fork(log_in_anew) == ""
    mechanism.close()


def test_other_credentials_have_a_login_of_their_own():
    sources = [Source(), Source()]
    mechanisms = [OAuthBearer(configured(secret), source) for secret, source in zip("56", sources, strict=True)]
    for mechanism in mechanisms:
        first_message(mechanism)
        mechanism.close()
    assert [source.fetches for source in sources] == [1, 1]
