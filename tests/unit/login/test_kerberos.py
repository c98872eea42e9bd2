"""GSSAPI's exchange of messages, on contexts that a script replaces; real ones are those of ``make test-gssapi``."""

import importlib
import sys
import threading
from dataclasses import dataclass, replace
from random import Random
from unittest.mock import MagicMock

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError, LoginError, SaslAuthenticationError
from spark_kafka_sink.network.login.kerberos import Kerberos, renewal
from spark_kafka_sink.network.login.sasl import sasl_mechanism
from spark_kafka_sink.network.login.token_login import RetriableLoginError, Token
from tests.unit.login.test_oauthbearer import next_message

KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
HOUR = 3_600_000.0


def configured(jaas="useTicketCache=true", **others):
    return ProducerConfig.parse({
        "bootstrap.servers": "b:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": f"{KRB5} {jaas};", "sasl.kerberos.service.name": "kafka", **others,
    })  # fmt: skip


class Context:
    """Two steps; the second one ends it."""

    what = "a ticket of the test"

    def __init__(self, service, host):
        self.peer = f"{service}/{host}"
        self.established = False
        self.threads = []
        self.error = None

    def advance(self, token):
        self.threads.append(threading.current_thread())
        if self.error is not None:
            raise self.error
        self.established = token != b""
        return b"" if self.established else f"AP-REQ for {self.peer}".encode()

    def unwrap(self, message):
        return message.removeprefix(b"wrapped ")

    def wrap(self, content):
        return b"wrapped " + content


@dataclass
class Ticket:
    principal: str
    expires_at: float
    issued_at: float | None
    made: Context | None = None
    error: Exception | None = None

    def context(self, service, host):
        self.made = Context(service, host)
        self.made.error = self.error
        return self.made


class Source:
    what = "a ticket of the test"

    def __init__(self, error=None):
        self.ticket = Ticket("orders@EXAMPLE.COM", 1e15, None, error=error)

    def fetch(self):
        return self.ticket


def test_the_messages_are_those_of_rfc_4752_without_a_security_layer():
    source = Source()
    mechanism = Kerberos(configured(), source)
    exchange = mechanism.exchange("broker1.example.com")
    assert next_message(exchange) == b"AP-REQ for kafka/broker1.example.com"
    assert next_message(exchange, b"AP-REP") == b""
    assert next_message(exchange, b"wrapped \x07\x00\x10\x00") == b"wrapped \x01\x00\x00\x00orders@EXAMPLE.COM"
    with pytest.raises(StopIteration):
        exchange.send(b"")
    assert threading.current_thread() not in source.ticket.made.threads
    assert len(source.ticket.made.threads) == 2
    mechanism.close()


@pytest.mark.parametrize("offer", [b"\x06\x00\x10\x00", b"", b"\x01"])
def test_a_broker_that_insists_on_a_security_layer_is_one_clear_error(offer):
    mechanism = Kerberos(configured(), Source())
    exchange = mechanism.exchange("b")
    next_message(exchange)
    next_message(exchange, b"AP-REP")
    with pytest.raises(SaslAuthenticationError, match="authentication without a security layer"):
        exchange.send(b"wrapped " + offer)
    mechanism.close()


@pytest.mark.parametrize("error", [LoginError("no ticket"), ValueError("secret")])
def test_a_step_that_fails_ends_the_exchange_and_no_unexpected_text_is_shown(error):
    mechanism = Kerberos(configured(), Source(error))
    with pytest.raises(LoginError) as raised:
        next_message(mechanism.exchange("b"))
    unexpected = "a ticket of the test could not be obtained: ValueError"
    expected = "no ticket" if isinstance(error, LoginError) else unexpected
    assert str(raised.value) == expected
    mechanism.close()


def test_a_service_name_behind_a_placeholder_is_checked_at_the_login(monkeypatch):
    config = configured('useTicketCache=true serviceName="${env:SERVICE}"', **{"sasl.kerberos.service.name": None})
    monkeypatch.setenv("SERVICE", "stream")
    mechanism = Kerberos(config, Source())
    assert next_message(mechanism.exchange("b")) == b"AP-REQ for stream/b"
    mechanism.close()
    monkeypatch.setenv("SERVICE", "")
    with pytest.raises(SaslAuthenticationError, match=r"sasl\.kerberos\.service\.name is required with GSSAPI"):
        next(Kerberos(config, Source()).exchange("b"))


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    monkeypatch.delitem(sys.modules, "spark_kafka_sink.network.login.gss", raising=False)
    with pytest.raises(ConfigError, match=r"pip install gssapi.*libkrb5-dev"):
        sasl_mechanism(configured())


@pytest.mark.parametrize(
    ("life_h", "factor", "least_ms", "expected_h"),
    [
        (10, 0.8, 60_000, 8),
        (10, 0.5, 60_000, 5),
        (10, 0.0, 3_600_000, 1),  # the shortest time
        (10, 7.0, 60_000, 10),  # at the end at the latest
        (0.01, 0.8, 60_000, 0.008),  # shorter than the shortest time, which is ignored
    ],
)
def test_tickets_are_renewed_by_the_options_of_kerberos(life_h, factor, least_ms, expected_h):
    config = replace(
        configured(),
        sasl_kerberos_ticket_renew_window_factor=factor,
        sasl_kerberos_ticket_renew_jitter=0.0,
        sasl_kerberos_min_time_before_relogin=least_ms,
        sasl_login_refresh_window_factor=0.9,
    )
    found = renewal(config).refresh_time(Token("t", life_h * HOUR, 0.0), 0.0, Random(1))
    assert found == pytest.approx(expected_h * HOUR)


@pytest.fixture
def gss(monkeypatch):
    """The module, with a stand-in for its library, which not every machine has."""
    name = "spark_kafka_sink.network.login.gss"
    monkeypatch.setitem(sys.modules, "gssapi", MagicMock())
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)


def test_errors_of_kerberos_name_what_to_look_at(gss):
    login_error = gss.login_error
    assert gss.signed_minor(2529639068) == gss.KDC_UNREACHABLE
    assert gss.signed_minor(100001) == 100001
    unreachable = login_error("No ticket", gss.KDC_UNREACHABLE, "Cannot contact any KDC", "see x")
    assert isinstance(unreachable, RetriableLoginError)
    assert str(unreachable).startswith("No ticket: Cannot contact any KDC; see the realm's kdc in krb5.conf")
    assert "keytab anew" in str(login_error("No ticket", gss.BAD_INTEGRITY, "Decrypt integrity check failed"))
    assert "clocks" in str(login_error("No ticket", gss.SKEW, "Clock skew too great"))
    other = login_error("No ticket", 2, "No such file", "see x")
    assert str(other) == "No ticket: No such file; see x"
    assert not isinstance(other, RetriableLoginError)
