"""max.block.ms and other timeouts are spent once a call, wherever it waits."""

from __future__ import annotations

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.errors import BufferExhaustedError, KafkaTimeoutError
from spark_kafka_sink.producer.accumulator.buffer_pool import Reservation
from spark_kafka_sink.producer.append.pending_records import CLOSED
from spark_kafka_sink.producer.serializers import StringSerializer
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S, eventually
from tests.unit.scripted_engine import Engine

GRANTED = 1_000.0


class Waits:
    """What each wait is granted; each takes ``ms`` of a manual clock."""

    def __init__(self, monkeypatch, clock, ms):
        self._monkeypatch = monkeypatch
        self._clock = clock
        self._ms = ms
        self.granted = []

    def note(self, target, name, place, result=None):
        """Calls of the method are a wait, granted at ``place`` of the arguments."""
        method = getattr(target, name)

        def call(*arguments):
            self.granted.append((name, arguments[place]))
            self._clock.advance(self._ms)
            return method(*arguments) if result is None else result

        self._monkeypatch.setattr(target, name, call)


@pytest.fixture
def engine() -> Engine:
    engine = Engine(partitions=1, max_block_ms=int(GRANTED), linger_ms=5, buffer_memory=400_000)
    engine.connect()
    return engine


@pytest.fixture
def waits(engine, monkeypatch):
    waits = Waits(monkeypatch, engine.clock, 700)
    waits.note(engine.parts.metadata, "wait_for_topics", 1)
    waits.note(engine.parts.accumulator.pool, "reserve", 2)
    return waits


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.parts.pending.append(ProducerRecord("t", b"v"), None, b"v"),
        lambda each: each.append([b"v"]),
    ],
    ids=["send", "append_columns"],
)
def test_a_call_has_one_deadline_for_metadata_and_memory(engine, waits, call):
    """Each wait got max.block.ms whole: 1.5 s were configured, 2.7 s waited."""
    call(engine)
    assert waits.granted == [("wait_for_topics", 1_000), ("reserve", 300)]


def test_a_call_with_more_rows_than_memory_waits_anew_once_memory_was_granted(engine, monkeypatch):
    waits = Waits(monkeypatch, engine.clock, 700)
    waits.note(engine.parts.metadata, "wait_for_topics", 1)
    waits.note(engine.parts.accumulator.pool, "reserve", 2, result=True)
    engine.append([b"x" * 60_000] * 4)
    granted = [ms for _, ms in waits.granted]
    assert len(granted) > 3
    assert granted == [1_000, 300, *[1_000] * (len(granted) - 2)]


def test_slices_that_did_not_wait_leave_what_metadata_has_left(engine, waits):
    engine.append([b"x" * 30_000] * 4)
    granted = [ms for _, ms in waits.granted]
    assert len(granted) > 2
    assert granted == [1_000, *[300] * (len(granted) - 1)]


def test_memory_is_not_waited_for_when_metadata_took_all_of_the_time(engine, monkeypatch):
    waits = Waits(monkeypatch, engine.clock, 2_000)
    waits.note(engine.parts.metadata, "wait_for_topics", 1)
    pool = engine.parts.accumulator.pool
    pool.reserve(Reservation(), pool.total, 0, lambda: None)
    with pytest.raises(BufferExhaustedError):
        engine.parts.pending.append(ProducerRecord("t", b"v"), None, b"v")


@pytest.fixture
def broker(kafka_test_broker):
    kafka_test_broker.create_topic("t")
    return kafka_test_broker


@pytest.fixture
def config(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": int(GRANTED)}


def test_a_producer_with_serializers_has_one_deadline_too(config, monkeypatch):
    """It waits for metadata before it serializes, as Java does."""
    with KafkaProducer(config, value_serializer=StringSerializer()) as producer:
        parts, clock = producer._engine.parts, ManualClock()
        clock.advance(parts.clock.now())
        eventually(lambda: knows_the_topic(producer))
        waits = Waits(monkeypatch, clock, 400)
        known = parts.metadata.snapshot
        monkeypatch.setattr(parts.metadata, "snapshot", ClusterSnapshot())
        waits.note(parts.metadata, "wait_for_topic", 2, result=known)
        waits.note(parts.accumulator.pool, "reserve", 2)
        object.__setattr__(parts, "clock", clock)
        parts.appender.clock = clock
        future = producer.send(ProducerRecord("t", "v"))
        monkeypatch.undo()
        assert future.result(DEADLINE_S).offset == 0
    assert waits.granted == [("wait_for_topic", 1_000), ("wait_for_topic", 600), ("reserve", 200)]


def knows_the_topic(producer):
    """Each call waits one second."""
    try:
        return producer.partitions_for("t")
    except KafkaTimeoutError:
        return False


def test_flush_has_one_deadline(config, monkeypatch):
    with KafkaProducer(config) as producer:
        parts, clock = producer._engine.parts, ManualClock()
        object.__setattr__(parts, "clock", clock)
        waits = Waits(monkeypatch, clock, 400)
        waits.note(parts.pending, "flush", 0)
        waits.note(parts.accumulator, "await_flush", 1)
        waits.note(parts.sender_thread.callbacks, "wait", 0)
        producer.flush(GRANTED)
    assert waits.granted[:3] == [("flush", 1_000), ("await_flush", 600), ("wait", 200)]


def test_close_has_one_deadline(config, monkeypatch):
    producer = KafkaProducer(config)
    parts, clock = producer._engine.parts, ManualClock()
    object.__setattr__(parts, "clock", clock)
    waits = Waits(monkeypatch, clock, 400)
    waits.note(parts.pending, "flush", 0)
    waits.note(parts.sender_thread, "close", 0)
    producer.close(GRANTED)
    assert waits.granted == [("flush", 1_000), ("close", 600)]


def test_flush_and_commit_do_not_wait_for_ever_for_another_threads_encoding(config):
    with KafkaProducer({**config, "transactional.id": "tx", "max.block.ms": 120_000}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
        topic = producer._engine.parts.pending.topics["t"]
        topic._appending = CLOSED
        with pytest.raises(KafkaTimeoutError, match="^Failed to flush within 50 ms$"):
            producer.flush(50)
        with pytest.raises(
            KafkaTimeoutError, match=r"^commit_transaction\(\): Failed to flush within 50 ms; call it again$"
        ):
            producer.commit_transaction(50)
        topic._appending = None
        producer.commit_transaction()
