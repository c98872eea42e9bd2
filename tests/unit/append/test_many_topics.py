"""A producer of many topics: its work follows those that are open or new, not all that it has ever sent to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.producer.record import ProducerRecord
from tests.support.scripted_network import SentRequest
from tests.unit.scripted_engine import TOPIC, Engine

MANY = 10_000
IDLE_MS = 5_000


class TopicsEngine(Engine):
    """Its brokers take the rows of every topic, and keep none."""

    def _produce(self, request: SentRequest) -> Any:
        module = request.module.response
        self.requests.append([0])
        responses = tuple(
            module.TopicProduceResponse(
                name=topic.name,
                partition_responses=tuple(
                    module.PartitionProduceResponse(
                        index=each.index, error_code=ErrorCode.none, base_offset=0, log_start_offset=0, record_errors=()
                    )
                    for each in topic.partition_data
                ),
            )
            for topic in request.entity().topic_data
        )
        return module.ProduceResponse(responses=responses)


def visited(run: Callable[[], object]) -> int:
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


def send(engine: Engine, topic: str = TOPIC):
    return engine.parts.records.put(ProducerRecord(topic, b"v"), None, b"v")


def record_delivered(engine: Engine) -> None:
    assert (sent := send(engine))
    engine.turn()
    engine.turn()
    engine.turn()
    assert sent.done()


def record_of_a_new_topic(engine: Engine) -> None:
    """``send`` would wait for its metadata."""
    engine.wait_for_topic("new", 1000, engine.turn)


@pytest.fixture(scope="module")
def engines() -> tuple[Engine, Engine]:
    """One that has sent to one topic, and one that has sent to many."""
    one, many = TopicsEngine(buffer_memory=1 << 30).connect(), TopicsEngine(buffer_memory=1 << 30).connect()
    names = [f"other-{number}" for number in range(MANY)]
    for name in names:
        many.parts.metadata.note_use(name, many.clock.now())
    many.parts.metadata.request_update(at_once=True)
    for name in names:
        many.wait_for_topic(name, 1000, many.turn)
        send(many, name)
    for engine in (one, many):
        send(engine)
        engine.settle()
        assert engine.memory_is_free()
    return one, many


@pytest.mark.parametrize("work", [record_delivered, record_of_a_new_topic])
def test_a_record_costs_what_it_costs_with_one_topic(engines, work):
    one, many = engines
    assert visited(lambda: work(many)) < 1.1 * visited(lambda: work(one))


def test_a_topic_that_was_not_used_for_metadata_max_idle_ms_is_forgotten_and_may_be_used_again():
    engine = Engine(linger_ms=5, metadata_max_idle_ms=IDLE_MS, metadata_max_age_ms=IDLE_MS).connect()
    for _ in range(2):
        send(engine)
        engine.settle()
        for _ in range(3):
            engine.spin(IDLE_MS)
        assert not engine.parts.inbox.names
        assert not engine.parts.metadata.snapshot.topics
        engine.wait_for_topic(TOPIC, 1000, engine.spin)
    assert engine.values() == [b"v"] * 2


def test_records_that_come_as_their_topic_is_forgotten_are_sent():
    engine = Engine(linger_ms=5, metadata_max_idle_ms=IDLE_MS, metadata_max_age_ms=IDLE_MS).connect()
    send(engine)
    engine.settle()
    known = engine.parts.inbox.names[TOPIC]
    for _ in range(3):
        engine.spin(IDLE_MS)
    engine.parts.inbox.names[TOPIC] = known  # as a caller has it that goes on just now
    send(engine)
    engine.settle()
    assert engine.values() == [b"v"] * 2


def test_what_a_caller_knows_of_a_topic_is_no_snapshot_of_the_cluster():
    """Ten thousand topics, each found by an update of its own, would hold ten thousand maps of all topics."""
    engine = Engine().connect()
    send(engine)
    before = engine.parts.metadata.snapshot
    engine.wait_for_topic("other", 1000, engine.turn)
    engine.turn()
    referrers = [each for each in vars(engine.parts.inbox.names[TOPIC]).values() if each is before]
    assert before is not engine.parts.metadata.snapshot
    assert not referrers


@pytest.mark.parametrize("partitioner", ["default", "round_robin", "uniform_sticky"])
def test_incident_each_send_that_closed_a_buffer_walked_all_partitions_of_its_topic(partitioner):
    few, many = (Engine(partitions=count, partitioner_class=partitioner).connect() for count in (10, 300))
    for engine in (few, many):
        send(engine)
        engine.settle()
    assert visited(lambda: record_delivered(many)) < 1.2 * visited(lambda: record_delivered(few))
