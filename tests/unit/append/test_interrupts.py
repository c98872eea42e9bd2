"""Ctrl-C at each line of an append, a send and a flush: what was sent completes, memory is free, nothing is committed
without its rows, and the producer goes on.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from spark_kafka_sink.common import waiting
from spark_kafka_sink.errors import IllegalStateError, KafkaError, TransactionAbortableError
from spark_kafka_sink.network import metadata
from spark_kafka_sink.producer import engine as engine_module
from spark_kafka_sink.producer import producer, transactional_calls
from spark_kafka_sink.producer.accumulator import accumulator, buffer_pool, claim, producer_batch
from spark_kafka_sink.producer.append import append, future_record_metadata, pending, pending_records, receipt, rows
from spark_kafka_sink.producer.append.receipt import SendReceipt
from spark_kafka_sink.producer.append.record import ProducerRecord
from spark_kafka_sink.producer.engine import ProducerEngine
from spark_kafka_sink.producer.interceptors import InterceptorChain
from spark_kafka_sink.producer.producer import KafkaProducer
from spark_kafka_sink.producer.sender import sender_thread
from spark_kafka_sink.producer.serializers import RecordSerializers
from spark_kafka_sink.producer.transactional_calls import TransactionalCalls
from spark_kafka_sink.producer.transactions.states import Step
from spark_kafka_sink.records.columns import RecordColumns, bytes_column
from tests.unit.interrupts import Interrupter
from tests.unit.scripted_engine import TOPIC, Engine
from tests.unit.transactions.transactional_engine import TransactionalEngine
from tests.waiting import DEADLINE_S

MODULES = [
    accumulator,
    buffer_pool,
    claim,
    append,
    engine_module,
    producer,
    producer_batch,
    receipt,
    rows,
    pending_records,
    future_record_metadata,
    pending,
    waiting,
    metadata,
    transactional_calls,
    sender_thread,
]
PARTITIONS = 2


class Interrupted:
    """A producer without a thread, in an open transaction. A caller that will wait for its sender runs the loop."""

    def __init__(self, number: int, **config: object) -> None:
        self.engine: Any = self.make_engine({"linger_ms": 50, "batch_size": 400, "buffer_memory": 40_000, **config})
        engine = self.engine
        self.interrupter = Interrupter(MODULES, number)
        self.door = door = ProducerEngine.__new__(ProducerEngine)
        TransactionalCalls.__init__(door)
        door.config, door.parts = engine.config, engine.parts
        door.is_inherited = door._closed = False
        self.producer = made = KafkaProducer.__new__(KafkaProducer)
        made.config = engine.config
        made._engine = door
        made._interceptors = InterceptorChain(())
        made._serializers = RecordSerializers(None, None)
        made._partitioning = None
        made._fast = {}
        thread: Any = engine.parts.sender_thread
        thread.is_alive = lambda: True
        turn = self.interrupter.paused(self.turn)
        thread.wakeup = turn
        self.receipts: list[SendReceipt] = []
        self.futures: list[Any] = []
        self.accepted: list[bytes] = []
        self.tried: list[bytes] = []
        self.of_interrupted_call: Counter[bytes] = Counter()
        self.unharmed: list[SendReceipt] = []

    def make_engine(self, config: dict[str, object]) -> Engine:
        return TransactionalEngine(True, PARTITIONS, **config).begun()

    def turn(self) -> None:
        accumulator = self.engine.parts.accumulator
        if not (accumulator.pool.exhausted or accumulator._flushes):
            return
        self.engine.parts.pending.publish_due(float("inf"))
        self.engine.spin(100)

    def send_columns(self, values: list[bytes]) -> None:
        receipt = SendReceipt()
        self.receipts.append(receipt)
        self.tried = values
        chosen = np.array([row % PARTITIONS for row in range(len(values))], np.int32)
        self.door.append_columns(TOPIC, RecordColumns(value=bytes_column(values)), chosen, receipt)
        self.accepted += values
        self.tried = []
        self.unharmed.append(receipt)

    def send(self, value: bytes, key: bytes | None = None, **fields: Any) -> None:
        self.tried = [value]
        self.futures.append(self.producer.send(ProducerRecord(TOPIC, value, key, **fields)))
        self.accepted.append(value)
        self.tried = []

    def check(self) -> None:
        engine = self.engine
        waiting = [future for future in self.futures if not future.done()]
        try:
            engine.parts.pending.flush()
            engine.call(Step.COMMIT)
            visible = sorted(engine.visible(0) + engine.visible(1))
            assert visible in (sorted(self.accepted), sorted(self.accepted + self.tried)), "committed without rows"
        except TransactionAbortableError:
            engine.call(Step.ABORT)
            assert engine.visible(0) + engine.visible(1) == []
        for future in waiting:
            assert future.done(), "a future that never completes"
        for each in self.receipts:
            with suppress(KafkaError, MemoryError):
                each.wait(0)
            assert each.error is not None or each._appended == each._completed, "a receipt that never completes"
        assert not engine.parts.accumulator.has_incomplete
        assert engine.memory_is_free(), engine.config.buffer_memory - engine.parts.accumulator.pool.available
        assert not engine.parts.accumulator.pool.exhausted
        assert not engine.parts.accumulator._flushes
        seen = sorted(engine.visible(0) + engine.visible(1))
        engine.begin()
        self.futures, self.receipts = [], []
        self.send(b"next")
        self.send_columns([b"columns"] * 40)
        engine.parts.pending.flush()
        engine.call(Step.COMMIT)
        assert sorted(engine.visible(0) + engine.visible(1)) == sorted([*seen, b"next", *[b"columns"] * 40])
        assert all(future.result(0) for future in self.futures)
        assert engine.memory_is_free()


class InterruptedOutside(Interrupted):
    """Without transactions: rows of earlier calls are delivered whatever happens to the interrupted one."""

    def make_engine(self, config: dict[str, object]) -> Engine:
        engine = Engine(PARTITIONS, **config)
        engine.connect()
        return engine

    def check(self) -> None:
        engine = self.engine
        self.producer.flush()
        for future in self.futures:
            assert future.result(0), "a record that an earlier call sent"
        for each in self.unharmed:
            each.wait(0)
        self.of_interrupted_call = Counter(self.tried)
        self.check_log()
        assert not engine.parts.accumulator.has_incomplete
        assert engine.memory_is_free(), engine.config.buffer_memory - engine.parts.accumulator.pool.available
        self.send(b"next")
        self.send_columns([b"columns"] * 40)
        self.producer.flush()
        assert self.futures[-1].result(0)
        self.receipts[-1].wait(0)
        self.check_log()
        assert engine.memory_is_free()

    def check_log(self) -> None:
        log = Counter(self.engine.values(0) + self.engine.values(1))
        accepted = Counter(self.accepted)
        assert accepted <= log, f"lost: {accepted - log}"
        assert log - accepted <= self.of_interrupted_call, "rows that no call sent, or twice"


class InterruptedCommit(Interrupted):
    """A call of the transaction is made again after its interrupt, as after a timeout."""

    def turn(self) -> None:
        self.engine.spin(100)

    def check(self) -> None:
        with suppress(IllegalStateError):  # the interrupt came when all was done
            self.producer.commit_transaction()
        assert sorted(self.engine.visible(0) + self.engine.visible(1)) == sorted(self.accepted)
        assert self.door._incomplete is None
        self.producer.begin_transaction()
        self.send(b"next")
        self.producer.commit_transaction()
        assert sorted(self.engine.visible(0) + self.engine.visible(1)) == sorted(self.accepted)


def at_each_line(act: Callable[[Any], None], made: type[Interrupted] = Interrupted, **config: object) -> list[str]:
    """Where ``act`` was interrupted."""
    struck: list[str] = []
    failed: list[str] = []
    for number in range(1, 10_000):
        interrupted = made(number, **config)

        def run(interrupted: Interrupted = interrupted) -> None:
            with interrupted.interrupter.armed(), suppress(KeyboardInterrupt, KafkaError, MemoryError):
                act(interrupted)
            try:
                interrupted.check()
            except BaseException as error:
                failed.append(f"{interrupted.interrupter.struck}: {error!r}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        if thread.is_alive():
            failed.append(f"{interrupted.interrupter.struck}: hangs")
        if interrupted.interrupter.struck is None or len(failed) > 5:
            break
        struck.append(interrupted.interrupter.struck)
    assert not failed, "\n".join(failed)
    return struck


def columns(interrupted: Interrupted) -> None:
    interrupted.send_columns([b"%03d" % row + b"x" * 100 for row in range(9)])
    interrupted.send_columns([b"%03d" % row + b"y" * 100 for row in range(3)])


def sends(interrupted: Interrupted) -> None:
    """Through several pending records, which this thread closes and appends."""
    for number in range(4):
        interrupted.send(b"%d" % number + b"x" * 4_000)


def sends_of_all_kinds(interrupted: Interrupted) -> None:
    interrupted.send(b"0", b"key")
    interrupted.send(b"1", b"key", partition=1, timestamp=5, headers=(("h", b"v"),))
    interrupted.send(b"2")
    interrupted.send(b"3", b"key")
    interrupted.send(b"x" * 6_000)
    interrupted.send(b"y" * 6_000, b"key")


def sends_to_shared_records(interrupted: Interrupted) -> None:
    others = threading.Thread(target=interrupted.send, args=(b"theirs",))
    others.start()
    others.join()
    for number in range(4):
        interrupted.send(b"%d" % number, b"key" if number % 2 else None)


def columns_without_memory(interrupted: Interrupted) -> None:
    """The memory that is waited for is granted when the sender is called; it never is when max.block.ms is 0."""
    interrupted.interrupter.paused(interrupted.send_columns)([b"x" * 1_400] * 3)
    interrupted.send_columns([b"y" * 1_400])


def send_without_memory(interrupted: Interrupted) -> None:
    interrupted.interrupter.paused(interrupted.send_columns)([b"x" * 1_400] * 3)
    interrupted.send(b"y" * 1_400)


def flush(interrupted: Interrupted) -> None:
    interrupted.interrupter.paused(sends_of_all_kinds)(interrupted)
    interrupted.tried = []
    interrupted.producer.flush()


@pytest.mark.parametrize("made", [Interrupted, InterruptedOutside])
def test_an_interrupt_at_each_line_of_append_columns(made):
    assert len(at_each_line(columns, made)) > 200


@pytest.mark.slow
@pytest.mark.parametrize("made", [Interrupted, InterruptedOutside])
def test_an_interrupt_at_each_line_of_append_columns_that_compresses(made):
    assert len(at_each_line(columns, made, compression_type="lz4")) > 200


@pytest.mark.parametrize(
    "act", [pytest.param(sends, marks=pytest.mark.slow), sends_of_all_kinds, sends_to_shared_records]
)
@pytest.mark.parametrize("made", [Interrupted, InterruptedOutside])
def test_an_interrupt_at_each_line_of_send(act, made):
    assert len(at_each_line(act, made)) > 100


@pytest.mark.parametrize("act", [columns_without_memory, send_without_memory])
@pytest.mark.parametrize("max_block_ms", [pytest.param(0, marks=pytest.mark.slow), 1000])
@pytest.mark.parametrize("made", [Interrupted, InterruptedOutside])
def test_an_interrupt_at_each_line_of_waiting_for_memory(act, max_block_ms, made):
    where = at_each_line(act, made, buffer_memory=6_000, max_block_ms=max_block_ms)
    assert any("_await_grant" in line for line in where)


@pytest.mark.parametrize("made", [Interrupted, InterruptedOutside])
def test_an_interrupt_at_each_line_of_flush(made):
    assert any("await_flush" in line for line in at_each_line(flush, made))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "fails", "config"),
    [
        (columns, "spark_kafka_sink.producer.append.rows.encode_records", {}),
        (columns, "spark_kafka_sink.producer.accumulator.accumulator.compress", {"compression_type": "lz4"}),
        (sends, "spark_kafka_sink.producer.append.rows.encode_values", {}),
        (sends_of_all_kinds, "spark_kafka_sink.producer.append.pending_records.bytes_column", {}),
        (sends_of_all_kinds, "spark_kafka_sink.producer.accumulator.accumulator.compress", {"compression_type": "lz4"}),
    ],
)
def test_an_interrupt_at_each_line_of_what_tidies_up_after_an_error(monkeypatch, act, fails, config):
    """The second time it is called, that is, and then no more."""
    module, _, name = fails.rpartition(".")
    works = getattr(import_module(module), name)
    calls: list[int] = []

    def fail(*arguments: Any) -> Any:
        if calls and calls.pop() == 2:
            raise MemoryError
        return works(*arguments)

    def acting(interrupted: Interrupted) -> None:
        calls[:] = [2, 1]
        try:
            act(interrupted)
        finally:
            calls.clear()

    monkeypatch.setattr(fails, fail)
    assert len(at_each_line(acting, **config)) > 100


def commit(interrupted: Interrupted) -> None:
    interrupted.interrupter.paused(sends_of_all_kinds)(interrupted)
    interrupted.producer.commit_transaction()


def test_an_interrupt_at_each_line_of_commit_transaction():
    where = at_each_line(commit, InterruptedCommit)
    assert any("TransactionalRequestResult.wait" in line for line in where)


def partitions_of_a_new_topic(interrupted: Interrupted) -> None:
    interrupted.producer.partitions_for("new")


class InterruptedLookup(InterruptedOutside):
    def turn(self) -> None:
        self.engine.spin(100)

    def check(self) -> None:
        assert self.engine.parts.metadata.waiting_since is None, "a wait that is over is reported as a stall"
        assert self.producer.partitions_for("new")
        super().check()


def test_an_interrupt_at_each_line_of_partitions_for():
    where = at_each_line(partitions_of_a_new_topic, InterruptedLookup)
    assert any("Metadata._await_round" in line for line in where)
