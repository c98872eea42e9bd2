"""A producer of many topics: its work follows those that are open or new, not all that it has ever sent to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from spark_kafka_sink.errors import ProducerClosedError
from spark_kafka_sink.producer.record import ProducerRecord
from tests.unit.scripted_engine import TOPIC, Engine

FEW, MANY = 10, 300
IDLE_MS = 5_000


def steps(run: Callable[[], object]) -> int:
    """How many instructions of the package ``run`` executes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = "/spark_kafka_sink/" in frame.f_code.co_filename
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def first_record(engine: Engine, topic: str) -> None:
    """Up to where its buffer would be opened; the engine's brokers take the rows of one topic only."""
    engine.wait_for_topic(topic, 1000, engine.spin)
    engine.parts.pending.topic(topic)


def send(engine: Engine, value: bytes = b"v"):
    return engine.parts.pending.append(ProducerRecord(TOPIC, value), None, value)


def record_in_a_turn(engine: Engine) -> int:
    send(engine)
    return steps(engine.turn)


def record_of_a_new_topic(engine: Engine) -> int:
    return steps(lambda: first_record(engine, "new"))


@pytest.mark.parametrize("work", [record_in_a_turn, record_of_a_new_topic])
def test_incident_a_record_cost_as_much_as_there_were_topics(work):
    few, many = Engine().connect(), Engine().connect()
    for engine, count in ((few, FEW), (many, MANY)):
        for number in range(count):
            first_record(engine, f"other-{number}")
        send(engine)
        engine.settle()
    assert work(many) < 1.2 * work(few)


def test_a_topic_that_was_not_used_for_metadata_max_idle_ms_is_forgotten_and_never_has_two_buffers():
    engine = Engine(linger_ms=5, metadata_max_idle_ms=IDLE_MS).connect()
    pending = engine.parts.pending
    send(engine, b"first")
    engine.settle()
    for _ in range(3):
        engine.spin(IDLE_MS)
    assert [*pending.topics] == []
    taken = pending.topic(TOPIC)  # by a caller that goes on after it was forgotten again
    for _ in range(3):
        engine.spin(IDLE_MS)
    assert [*pending.topics] == []
    taken.append(ProducerRecord(TOPIC, b"second"), None, b"second")
    assert pending.topics == {TOPIC: taken}
    engine.spin(IDLE_MS)
    assert engine.values() == [b"first", b"second"]


@pytest.mark.parametrize("partitioner", ["default", "round_robin", "uniform_sticky"])
def test_incident_each_send_that_closed_a_buffer_walked_all_partitions_of_its_topic(partitioner):
    few, many = (Engine(partitions=count, partitioner_class=partitioner).connect() for count in (FEW, MANY))
    for engine in (few, many):
        send(engine)
        engine.settle()
    assert record_in_a_turn(many) < 1.2 * record_in_a_turn(few)


def test_incident_an_abort_raised_because_another_thread_sent_to_a_new_topic():
    engine = Engine().connect()
    pending, interval, known = engine.parts.pending, sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)
    sending = threading.Thread(target=lambda: known.extend(pending.topic(f"t-{number}") for number in range(5_000)))
    sending.start()
    try:
        while sending.is_alive():
            pending.abort(ProducerClosedError("closed"))
    finally:
        sys.setswitchinterval(interval)
        sending.join()
