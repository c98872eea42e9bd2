"""A login fetches its tokens ahead of their end, and a failed one ends those that wait for it, once."""

from dataclasses import replace
from random import Random

import pytest

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import LoginError
from spark_kafka_sink.network.login.token_login import Login, RefreshWindow, RetriableLoginError, Token
from tests.support.manual_clock import ManualClock

CONFIG = replace(
    ProducerConfig.parse({"bootstrap.servers": "b:1"}),
    sasl_mechanism="OAUTHBEARER",
    sasl_login_refresh_window_jitter=0.0,
)
HOUR = 3_600_000


class Source:
    what = "a token of the test"

    def __init__(self, clock):
        self.clock = clock
        self.outcomes = []
        self.fetches = 0

    def fetch(self):
        self.fetches += 1
        outcome = self.outcomes.pop(0) if self.outcomes else HOUR
        if isinstance(outcome, Exception):
            raise outcome
        return Token(f"t{self.fetches}", self.clock.epoch_ms() + outcome, self.clock.epoch_ms())


class Turned:
    """A login whose thread is turned by hand."""

    def __init__(self, **config):
        self.clock = ManualClock()
        self.source = Source(self.clock)
        config = replace(CONFIG, **config)
        window = RefreshWindow.of_tokens(config)
        self.login = Login(config, self.source, window, self.clock, Random(1))
        self.login._wake = lambda: None
        self.due = NEVER

    def run(self):
        self.due = self.login.run_once(self.clock.now())

    def token(self):
        step = self.login.token()
        self.run()
        return step.result().value


@pytest.fixture
def turned():
    return Turned()


def test_the_next_token_is_fetched_ahead_of_the_end_while_the_last_one_is_in_use(turned):
    assert turned.token() == "t1"
    assert turned.due == 0.8 * HOUR
    turned.clock.advance(turned.due - 1)
    turned.run()
    assert turned.source.fetches == 1
    turned.clock.advance(1)
    assert turned.login.token().result().value == "t1"
    turned.run()
    assert turned.login.token().result().value == "t2"


def test_a_refresh_that_fails_keeps_the_token_and_is_repeated_after_ten_seconds(turned):
    turned.token()
    turned.source.outcomes = [LoginError("no")]
    turned.clock.advance(turned.due)
    turned.run()
    assert turned.login.token().result().value == "t1"
    assert turned.due == turned.clock.now() + 10_000
    turned.clock.advance(10_000)
    turned.run()
    assert turned.login.token().result().value == "t3"


def test_an_expired_token_is_not_handed_out(turned):
    turned.token()
    turned.clock.advance(HOUR)
    step = turned.login.token()
    assert not step.done
    turned.run()
    assert step.result().value == "t2"


def test_a_retriable_error_is_retried_with_doubling_pauses_until_the_longest_pause_is_over(turned):
    turned.source.outcomes = [RetriableLoginError(f"no {number}") for number in range(50)]
    step = turned.login.token()
    attempts = []
    while not step.done:
        attempts.append(turned.clock.now())
        turned.run()
        if not step.done:
            turned.clock.advance(turned.due - turned.clock.now())
    assert attempts == [0, 100, 300, 700, 1500, 3100, 6300]
    with pytest.raises(LoginError, match="no 6"):
        step.result()


def test_a_final_error_is_not_retried_and_ends_who_asks_for_ten_seconds(turned):
    turned.source.outcomes = [LoginError("wrong secret")]
    with pytest.raises(LoginError, match="wrong secret"):
        turned.token()
    assert turned.due == NEVER
    turned.clock.advance(9_999)
    with pytest.raises(LoginError, match="wrong secret"):
        turned.token()
    assert turned.source.fetches == 1
    turned.clock.advance(1)
    assert turned.token() == "t2"


@pytest.mark.parametrize("life", [0, 1, 800, 1_200])
def test_incident_a_source_of_tokens_that_live_for_a_millisecond_was_asked_a_hundred_times_a_second(turned, life):
    """Each connection that logs in meanwhile needs a token that is still valid."""
    turned.source.outcomes = [life] * 100
    for _ in range(10_000):
        turned.login.token()
        turned.run()
        turned.clock.advance(1)
    assert turned.source.fetches <= 11


def test_a_token_that_has_ended_by_this_machines_clock_is_used_and_not_fetched_without_pause(turned):
    turned.source.outcomes = [-5_000]
    assert turned.token() == "t1"
    assert turned.due == 10_000


@pytest.mark.parametrize(
    ("life", "config", "expected"),
    [
        (3600, {}, 2880),
        (3600, {"sasl_login_refresh_window_factor": 0.95}, 3300),  # the buffer of 300 s
        (400, {}, 100),  # the buffer again: 400 - 300
        (361, {"sasl_login_refresh_window_factor": 0.5}, 61),
        (1000, {"sasl_login_refresh_window_factor": 0.5, "sasl_login_refresh_min_period_seconds": 600}, 600),
        (100, {}, 80),  # shorter than buffer and period: both are ignored
    ],
)
def test_the_refresh_time_is_javas(life, config, expected):
    token = Token("t", life * 1000.0, 0.0)
    window = RefreshWindow.of_tokens(replace(CONFIG, **config))
    assert window.refresh_time(token, 0.0, Random(1)) == expected * 1000


def test_the_jitter_is_added_to_the_share():
    config = replace(CONFIG, sasl_login_refresh_window_jitter=0.25, sasl_login_refresh_window_factor=0.5)
    window = RefreshWindow.of_tokens(config)
    times = {window.refresh_time(Token("t", HOUR, 0.0), 0.0, Random(seed)) for seed in range(50)}
    assert 0.5 * HOUR <= min(times) < 0.6 * HOUR
    assert 0.65 * HOUR < max(times) <= 0.75 * HOUR
