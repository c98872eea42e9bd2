"""Waits without a lock: who is woken, and Ctrl-C at each line, after which others wait and wake as before."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import count
from types import FrameType

import pytest

from spark_kafka_sink.common import waiting
from spark_kafka_sink.common.waiting import CallOutcome, Waiters
from tests.support.waiting import DEADLINE_S
from tests.unit.interrupts import traced

WAIT_MS = 20.0
FILES = {waiting.__file__, threading.__file__}


def waiting_threads(
    waiters: Waiters, happened: threading.Event, number: int
) -> tuple[list[threading.Thread], list[bool]]:
    told: list[bool] = []
    threads = [
        threading.Thread(target=lambda: told.append(waiters.wait_for(happened.is_set, float("inf"))), daemon=True)
        for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    return threads, told


def wait_comes_to(number: int) -> bool:
    """Whether a wait comes to so many lines; then Ctrl-C strikes at that one, while another thread waits, too."""
    waiters, happened, lines = Waiters(), threading.Event(), []
    threads, told = waiting_threads(waiters, happened, 1)

    def strike(frame: FrameType) -> None:
        lines.append(f"{frame.f_code.co_qualname}, line {frame.f_lineno}")
        if len(lines) == number:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), traced(lambda code: code.co_filename in FILES, strike):
        waiters.wait_for(bool, WAIT_MS)
    happened.set()
    waiters.notify_all()
    threads[0].join(DEADLINE_S)
    assert told == [True], lines[-1]
    assert not waiters.wait_for(bool, 1.0)
    return len(lines) >= number


def test_incident_an_interrupted_wait_unlocked_what_another_thread_had_locked():
    assert next(number for number in count(1) if not wait_comes_to(number)) > 10


@pytest.mark.parametrize("ms", [5, 0])
def test_whoever_waits_is_woken_and_who_gave_up_is_forgotten(ms):
    waiters, happened = Waiters(), threading.Event()
    threads, told = waiting_threads(waiters, happened, 3)
    assert not waiters.wait_for(happened.is_set, ms)
    happened.set()
    waiters.notify_all()
    waiters.notify_all()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert told == [True] * 3
    assert not waiters._asleep
    assert waiters.wait_for(lambda: True, 0)


def test_what_is_made_true_before_a_thread_sleeps_is_not_missed():
    waiters, looks = Waiters(), []

    def condition() -> bool:
        looks.append(1)
        if len(looks) == 2:  # it has joined: whoever makes the condition true after this look wakes it
            waiters.notify_all()
        return len(looks) > 2

    assert waiters.wait_for(condition, float("inf"))
    assert len(looks) == 3


def test_the_first_end_of_a_call_counts():
    outcome = CallOutcome()
    outcome.complete("first", None)
    outcome.complete(None, ValueError("second"))
    assert outcome.wait(0)
    assert outcome.value() == "first"


def test_incident_a_signal_handler_that_waited_for_the_sender_thread_kept_its_lock_from_it():
    """``send`` was looking at the metadata, and the handler called ``flush``. A wait holds no lock, so a handler that
    strikes while it reads its condition may wait for the same thread.
    """
    waiters, happened, nested = Waiters(), threading.Event(), []

    def condition() -> bool:
        if not nested:
            nested.append(1)
            nested.append(waiters.wait_for(happened.is_set, float("inf")))
        return happened.is_set()

    threads = [threading.Timer(0.01, lambda: (happened.set(), waiters.notify_all()))]
    threads[0].start()
    assert waiters.wait_for(condition, float("inf"))
    assert nested == [1, True]
