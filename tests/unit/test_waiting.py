"""Ctrl-C at each line of whatever waits: its lock is nobody's afterwards, or still its owner's."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from spark_kafka_sink.common import waiting
from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.metrics import ProducerMetrics
from spark_kafka_sink.common.waiting import Waiters
from spark_kafka_sink.errors import KafkaTimeoutError
from spark_kafka_sink.network import metadata
from spark_kafka_sink.producer.accumulator import accumulator
from spark_kafka_sink.producer.accumulator.buffer_pool import BufferPool
from spark_kafka_sink.producer.append import future_record_metadata, pending, receipt
from spark_kafka_sink.producer.sender import callbacks
from tests.support.waiting import DEADLINE_S
from tests.unit.interrupts import Interrupter

WAIT_MS = 20.0


def future() -> Any:
    outcome = future_record_metadata.ProduceRequestResult("t", callbacks.Callbacks(bool))
    return outcome, lambda: outcome.wait(0, WAIT_MS / 1000)


def receipt_wait() -> Any:
    made = receipt.SendReceipt()
    made.expect(1, None)
    return made, lambda: made.wait(WAIT_MS)


def callbacks_wait() -> Any:
    made = callbacks.Callbacks(bool)
    made.add((bool,), None)
    return made, lambda: made.wait(WAIT_MS)


def flush() -> Any:
    pool = BufferPool(1_000, SystemClock())
    config = ProducerConfig.parse({"bootstrap.servers": "boot:9092"})
    made: Any = accumulator.RecordAccumulator(config, pool, ProducerMetrics(pool))
    made._incomplete.setdefault("a batch")
    return made, lambda: made.await_flush(made.begin_flush(accumulator.Flush()), WAIT_MS)


def pending_flush() -> Any:
    appender: Any = SimpleNamespace(
        clock=SystemClock(),
        slice_limit=1000,
        config=SimpleNamespace(max_request_size=1000, buffer_memory=1000),
        sender_thread=SimpleNamespace(wakeup=bool),
    )
    made: Any = pending.TopicPendingRecords("t", appender)
    made._appending = "other records"
    return made, lambda: made.flush(appender.clock.now() + WAIT_MS)


def metadata_wait() -> Any:
    made = metadata.Metadata(ProducerConfig.parse({"bootstrap.servers": "boot:9092"}), Random(1))
    return made, lambda: made.wait_for_topic("t", None, WAIT_MS, SystemClock(), bool)


MODULES = [accumulator, callbacks, metadata, receipt, future_record_metadata, pending, threading, waiting]


class Rival:
    """Takes the lock when the interrupt strikes, if it can, and has it for a moment."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._tried = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self.robbed = False

    def strike(self) -> None:
        self._thread.start()
        self._tried.wait(DEADLINE_S)

    def _hold(self) -> None:
        taken = self._lock.acquire(timeout=0.01)
        self._tried.set()
        if taken:
            time.sleep(0.02)
            try:
                self._lock.release()
            except RuntimeError:
                self.robbed = True

    def join(self) -> None:
        self._thread.join(DEADLINE_S)


@pytest.mark.parametrize("made", [future, receipt_wait, callbacks_wait, flush, pending_flush, metadata_wait])
def test_incident_an_interrupted_wait_unlocked_what_another_thread_had_locked(made):
    for number in range(1, 200):
        waited, wait = made()
        rival = Rival(waited._lock)
        interrupter = Interrupter(MODULES, number)
        interrupter.before_strike = interrupter.paused(rival.strike)
        with suppress(KeyboardInterrupt, KafkaTimeoutError), interrupter.armed():
            wait()
        if interrupter.struck is None:
            break
        rival.join()
        assert not rival.robbed, interrupter.struck
        assert waited._lock.acquire(timeout=DEADLINE_S), interrupter.struck
    assert number > 10


def test_whoever_waits_is_woken_and_who_gave_up_is_forgotten():
    waiters, lock = Waiters(), threading.Lock()
    happened: list[int] = []
    told: list[bool] = []
    threads = [
        threading.Thread(target=lambda: told.append(waiters.wait_for(lock, lambda: bool(happened), 60_000)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert not waiters.wait_for(lock, lambda: bool(happened), 5)
    assert not waiters.wait_for(lock, lambda: bool(happened), 0)
    with lock:
        happened.append(1)
        waiters.notify_all()
        waiters.notify_all()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert told == [True] * 3
    assert not waiters._sleepers
    assert waiters.wait_for(lock, lambda: True, 0)


def test_an_endless_wait_is_one_a_lock_can_hold():
    waiters, lock = Waiters(), threading.Lock()
    told: list[bool] = []
    happened = threading.Event()
    thread = threading.Thread(target=lambda: told.append(waiters.wait_for(lock, happened.is_set, float("inf"))))
    thread.start()
    with lock:
        happened.set()
        waiters.notify_all()
    thread.join(DEADLINE_S)
    assert told == [True]
