"""A caller in full swing and the sender take turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.producer.turns import TurnTakingSelector
from tests.unit.scripted_engine import Engine


@pytest.fixture
def selector() -> Iterator[TurnTakingSelector]:
    selector = TurnTakingSelector()
    yield selector
    selector.shutdown()


@pytest.fixture
def no_limit(monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.producer.turns._LONGEST_TURN_S", 60)


def test_a_caller_stands_back_until_the_sender_polls_again(selector, no_limit):
    events: list[str] = []

    def stand_back() -> None:
        selector.stand_back()
        events.append("caller goes on")

    callers = [threading.Thread(target=stand_back) for _ in range(2)]
    for caller in callers:
        caller.start()
    while len(selector._standing_back) < 2:
        time.sleep(0.001)
    events.append("sender polls")
    selector.poll(0)
    for caller in callers:
        caller.join(10)
    assert events == ["sender polls", "caller goes on", "caller goes on"]


def test_a_callback_does_not_wait_for_its_own_turn(selector, no_limit):
    selector.poll(0)
    started = time.monotonic()
    selector.stand_back()
    assert time.monotonic() - started < 30


def test_a_turn_that_does_not_end_is_not_waited_for(selector):
    started = time.monotonic()
    selector.stand_back()
    assert 0.004 < time.monotonic() - started < 30
    selector.poll(0)


@pytest.mark.parametrize(("in_use", "stood_back"), [(0, 0), (16 << 20, 2)])
def test_whoever_fills_a_stage_stands_back_once_the_sender_lags_and_a_flush_does_not(in_use, stood_back):
    engine = Engine(linger_ms=5)
    engine.connect()
    pool = engine.parts.accumulator.pool
    pool.adjust(0, in_use)
    turns: list[None] = []
    staging = engine.parts.staging
    staging._parts = replace(staging._parts, stand_back=lambda: turns.append(None))
    for _ in range(500):
        staging.append(ProducerRecord("t", b"x" * 1000), None, b"x" * 1000)
    staging.flush()
    assert turns == []
    for _ in range(1100):
        staging.append(ProducerRecord("t", b"x" * 1000), None, b"x" * 1000)
    assert len(turns) == stood_back
    engine.settle()
    pool.adjust(in_use, 0)
    assert engine.memory_is_free()
