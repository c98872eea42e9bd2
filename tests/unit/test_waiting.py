"""Waits with a lock: who is woken, and Ctrl-C at each line, after which the lock is nobody's, or still its owner's."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress
from itertools import count
from types import FrameType
from typing import Any

from spark_kafka_sink.common import waiting
from spark_kafka_sink.common.waiting import Waiters
from tests.support.waiting import DEADLINE_S
from tests.unit.interrupts import traced

WAIT_MS = 20.0
FILES = {waiting.__file__, threading.__file__}


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


def wait_comes_to(number: int) -> bool:
    """Whether a wait comes to so many lines; then Ctrl-C strikes at that one, while a rival has taken the lock."""
    waiters, lock, lines = Waiters(), threading.Lock(), []
    rival = Rival(lock)

    def strike(frame: FrameType) -> None:
        lines.append(f"{frame.f_code.co_qualname}, line {frame.f_lineno}")
        if len(lines) == number:
            rival.strike()
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), traced(lambda code: code.co_filename in FILES, strike):
        waiters.wait_for(lock, bool, WAIT_MS)
    if len(lines) < number:
        return False
    rival.join()
    assert not rival.robbed, lines[-1]
    assert lock.acquire(timeout=DEADLINE_S), lines[-1]
    return True


def test_incident_an_interrupted_wait_unlocked_what_another_thread_had_locked():
    assert next(number for number in count(1) if not wait_comes_to(number)) > 10


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


def test_incident_a_signal_handler_that_waited_for_the_sender_thread_kept_its_lock_from_it():
    """``send`` was looking at the metadata, and the handler called ``flush``."""
    waiters, lock, locked = Waiters(), threading.Lock(), []

    def condition() -> bool:
        signal.raise_signal(signal.SIGALRM)
        return True

    before = signal.signal(signal.SIGALRM, lambda *_: locked.append(lock.locked()))
    try:
        assert waiters.wait_for(lock, condition, WAIT_MS)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert locked == [False]
