"""How long rows wait for the sender: it sleeps until something is due, unless a caller wakes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_sink.producer.append import rows as append_rows
from spark_kafka_sink.producer.append.record import ProducerRecord
from tests.unit.scripted_engine import TOPIC, Engine

SLACK_MS = 200


class SleepingSender(Engine):
    """Its sender runs like a thread: when it is woken or due, and at no other time. A broker responds at once.

    ``at_ms``: when each value reached the log.
    """

    def __init__(self, **config: object) -> None:
        super().__init__(**config)
        self.at_ms: dict[bytes, float] = {}
        self._seen_wakeups = 0
        self.connect()

    def let_pass(self, ms: int) -> None:
        for each in range(ms + 1):
            self.clock.advance(1 if each else 0)
            while self.transport.wakeups != self._seen_wakeups or self.clock.now() >= self.wake_at:
                self._seen_wakeups = self.transport.wakeups
                self.spin()
            for value in self.values():
                self.at_ms.setdefault(value, self.clock.now())


def encode_slowly(engine: SleepingSender, monkeypatch: pytest.MonkeyPatch, ms: int) -> None:
    """Encoding takes ``ms``, in which the sender runs."""

    def slow(encode: Callable[..., Any]) -> Callable[..., Any]:
        def encode_and_wait(*arguments: Any) -> Any:
            engine.let_pass(ms)
            return encode(*arguments)

        return encode_and_wait

    for name in ("encode_records", "encode_values"):
        monkeypatch.setattr(append_rows, name, slow(getattr(append_rows, name)))


def send_columns(engine: Engine, value: bytes) -> None:
    engine.append([value])


def send(engine: Engine, value: bytes) -> None:
    engine.parts.pending.append(ProducerRecord(TOPIC, value), None, value)
    engine.parts.pending.flush()  # as a caller that fills the pending records, so that the caller has the claim


def write(engine: SleepingSender, put: Callable[[Engine, bytes], None], every_ms: int) -> dict[bytes, float]:
    """A row every few ms for half a second. How long each waited."""
    put_at: dict[bytes, float] = {}
    while engine.clock.now() < 500:
        value = b"%d" % len(put_at)
        put_at[value] = engine.clock.now()
        put(engine, value)
        engine.let_pass(every_ms)
    engine.let_pass(500)
    return {value: engine.at_ms.get(value, math.inf) - at for value, at in put_at.items()}


@pytest.mark.parametrize("put", [send_columns, send])
@pytest.mark.parametrize("linger_ms", [0, 5, 50])
@pytest.mark.parametrize(("encoding_ms", "every_ms"), [(7, 5), (0, 12), (3, 0)])
def test_incident_rows_waited_for_seconds_because_linger_ended_while_their_batch_was_claimed(
    monkeypatch, put, linger_ms, encoding_ms, every_ms
):
    engine = SleepingSender(linger_ms=linger_ms)
    encode_slowly(engine, monkeypatch, encoding_ms)
    waits = write(engine, put, every_ms)
    assert max(waits.values()) <= linger_ms + SLACK_MS
