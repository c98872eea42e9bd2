"""What one round of the sender thread takes out of the inbox, and what memory has for the rest."""

from __future__ import annotations

from itertools import count

import pytest

from spark_kafka_sink.errors import BufferExhaustedError
from spark_kafka_sink.producer.record import ProducerRecord
from tests.unit.scripted_engine import TOPIC, Engine, Step

MEMORY = 32 << 20


def fill(engine: Engine, value: bytes) -> int:
    """Sends until buffer.memory is full. Returns the number of records."""
    record = ProducerRecord(TOPIC, value, partition=0)
    for sent in count():
        try:
            engine.parts.records.put(record, None, value, left_ms=0)
        except BufferExhaustedError:
            return sent
    raise AssertionError


@pytest.mark.parametrize("size", [300, 100_000])
def test_records_that_a_round_leaves_in_the_inbox_keep_their_memory(size):
    """Records of a few bytes came to three times buffer.memory where callers were quicker than the sender thread."""
    engine = Engine(buffer_memory=MEMORY).connect()
    engine.steps.extend(Step(swallow=True) for _ in range(100))
    sent = 0
    for _ in range(8):
        sent += fill(engine, b"v" * size)
        engine.turn()
    assert 0.9 * MEMORY < sent * size <= MEMORY
    engine.steps.clear()
    engine.settle()
    assert len(engine.values()) == sent
    assert engine.memory_is_free()


def test_the_network_is_served_between_small_calls():
    """A round took 16,000 of them, which was seconds."""
    engine = Engine().connect()
    values = [b"%d" % number for number in range(2_000)]
    engine.deliver(values[:1])
    for value in values[1:]:
        engine.append([value])
    engine.turn()
    assert 1 < len(engine.values()) <= 500
    engine.settle()
    assert engine.values() == values
    assert engine.memory_is_free()
