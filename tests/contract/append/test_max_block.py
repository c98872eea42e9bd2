"""max.block.ms and other timeouts are spent once a call, wherever it waits."""

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.producer.pending_records import CLOSED
from tests.contract.brokers import broker_with
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S
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
def engine():
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


broker = broker_with("t")


@pytest.fixture
def config(broker):
    return {"bootstrap.servers": broker.bootstrap_servers, "max.block.ms": int(GRANTED)}


@pytest.mark.parametrize(
    ("call", "granted"),
    [
        (KafkaProducer.flush, [("flush", 1_000), ("await_flush", 600), ("wait", 200)]),
        (KafkaProducer.close, [("flush", 1_000), ("close", 600)]),
    ],
)
def test_flush_and_close_have_one_deadline(config, monkeypatch, call, granted):
    with KafkaProducer(config) as producer:
        parts, clock = producer._core, ManualClock()
        object.__setattr__(parts, "clock", clock)
        waits = Waits(monkeypatch, clock, 400)
        waits.note(parts.pending, "flush", 0)
        waits.note(parts.accumulator, "await_flush", 1)
        waits.note(parts.sender_thread.callbacks, "wait", 0)
        waits.note(parts.sender_thread, "close", 0)
        call(producer, GRANTED)
        assert waits.granted[: len(granted)] == granted


def test_flush_and_commit_do_not_wait_for_ever_for_another_threads_encoding(config):
    with KafkaProducer({**config, "transactional.id": "tx", "max.block.ms": 120_000}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord("t", b"v")).result(DEADLINE_S)
        topic = producer._core.pending.topics["t"]
        producer._core.pending.note_open(topic)
        topic._appending = CLOSED
        with pytest.raises(KafkaTimeoutError, match="^Failed to flush within 50 ms$"):
            producer.flush(50)
        with pytest.raises(
            KafkaTimeoutError, match=r"^commit_transaction\(\): Failed to flush within 50 ms; call it again$"
        ):
            producer.commit_transaction(50)
        topic._appending = None
        producer.commit_transaction()
