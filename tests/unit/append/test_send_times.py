"""A record without a timestamp has the time of its ``send``, in the log and in its metadata."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from spark_kafka_sink.producer.record import ProducerRecord
from tests.unit.scripted_engine import TOPIC, Engine

KINDS: dict[str, dict[str, Any]] = {
    "values only": {},
    "keyed": {"key": b"k"},
    "with headers": {"headers": [("h", b"x")]},
    "null": {"value": None, "key": b"k"},
    "partition": {"partition": 0},
}


class Times:
    """Sends records and compares their timestamps in the log with when they were sent."""

    def __init__(self, **config: object) -> None:
        self.engine = engine = Engine(**{"linger_ms": 1_000, **config})
        engine.connect()
        self.log = engine.logs[0]
        self.expected: list[int] = []
        self.futures: list[Any] = []

    def send(self, value: bytes | None = b"v", timestamp: int | None = None, **fields: Any) -> None:
        self.expected.append(self.engine.clock.epoch_ms() if timestamp is None else timestamp)
        record = ProducerRecord(TOPIC, value, timestamp=timestamp, **fields)
        self.futures.append(self.engine.parts.pending.append(record, record.key, record.value))

    def check(self) -> None:
        self.engine.settle()
        assert [record.timestamp for record in self.log.records] == self.expected
        assert [future.result(0).timestamp for future in self.futures] == self.expected
        for batch in self.log.batches:
            times = [record.timestamp for record in batch.records]
            assert (batch.header.base_timestamp, batch.header.max_timestamp) == (times[0], max(times))
        assert self.engine.memory_is_free()


@pytest.mark.parametrize("kind", KINDS)
def test_incident_records_of_one_buffer_all_had_the_time_of_its_first(kind):
    times = Times()
    for wait in (0, 0, 3, 0, 400, 1, 0, 90):
        times.engine.clock.advance(wait)
        times.send(**KINDS[kind])
    times.check()


@pytest.mark.parametrize("same_size", [True, False])
@pytest.mark.parametrize("batch_size", [200, 1_000, 100_000])
@pytest.mark.parametrize("every", [1, 7, 60])
def test_times_are_those_of_each_record_where_a_buffer_becomes_many_batches(same_size, batch_size, every):
    times = Times(batch_size=batch_size)
    random = Random(every)
    for number in range(300):
        if number % every == 0:
            times.engine.clock.advance(random.randrange(3))
        times.send(b"x" * (20 if same_size else random.randrange(40)))
    times.check()


def test_kinds_of_records_and_given_timestamps_mix():
    times = Times()
    for number, kind in enumerate([*KINDS] * 8):
        times.engine.clock.advance(number % 3)
        times.send(timestamp=None if number % 4 else 5 * number, **KINDS[kind])
    times.check()


@pytest.mark.parametrize("key", [None, b"k"])
def test_records_join_an_open_batch_of_earlier_ones(key):
    """Their times are bounded as those of columns are: a narrower bound would end the batch."""
    times = Times(linger_ms=10_000)
    for _ in range(5):
        for _ in range(3):
            times.engine.clock.advance(1)
            times.send(key=key)
        times.engine.parts.pending.flush()
        times.engine.clock.advance(100)
    times.check()
    assert len(times.log.batches) == 1
