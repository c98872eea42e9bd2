"""The thread that runs the sender's loop: its wake-ups, its callbacks, what ends it, and interrupts of its callers."""

import sys
import threading
from contextlib import contextmanager

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.producer.sender.sender import SenderThread
from tests.support.waiting import DEADLINE_S, eventually

SENDER = "sender-under-test"


class Loop:
    """Stands for the sender: notes who turns it, and does what the test wants in a turn."""

    def __init__(self):
        self.turned_by = []
        self.in_turn = lambda: None
        self.running = threading.Lock()
        self.aborted_with = None
        self.has_work = False
        self.completed = 0
        self.comes_due = 60_000

    def run_once(self, now, events):
        assert self.running.acquire(blocking=False), "two threads in the loop"
        try:
            self.turned_by.append(threading.current_thread().name)
            self.in_turn()
        finally:
            self.running.release()
        return now + self.comes_due

    def begin_close(self, now):
        return now

    def abort(self, error):
        self.aborted_with = error

    def close(self):
        pass


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def thread(loop):
    with started(loop) as thread:
        yield thread


@contextmanager
def started(loop):
    thread = SenderThread(Selector(), SystemClock(), SENDER)
    thread.start(loop)
    eventually(lambda: loop.turned_by)
    try:
        yield thread
    finally:
        assert thread.close(DEADLINE_S * 1_000)


def test_incident_an_exception_while_the_client_closed_left_the_sockets_open_and_was_not_logged(
    loop, monkeypatch, caplog
):
    monkeypatch.setattr(loop, "close", lambda: 1 / 0)
    with started(loop) as thread:
        pass
    assert thread._transport._wakeup_reader.fileno() == -1
    assert "ZeroDivisionError" in caplog.text


def test_callbacks_added_outside_a_turn_wake_the_thread(thread, loop):
    told = []
    thread.callbacks.add([told.append], 1)
    assert thread.callbacks.wait(DEADLINE_S * 1_000)
    assert told == [1]


def test_sys_exit_in_a_callback_ends_neither_the_thread_nor_the_other_callbacks(thread, caplog):
    told = []
    thread.callbacks.add([lambda _: sys.exit(1), told.append], 1)
    assert thread.callbacks.wait(DEADLINE_S * 1_000)
    assert told == [1]
    assert thread.is_alive()
    assert "A callback of a sent record raised" in caplog.text


def test_callbacks_added_after_the_thread_has_ended_run_on_another_one_and_know_that_they_are_callbacks(loop):
    with started(loop) as thread:
        pass
    told = []
    thread.callbacks.add([lambda _: told.append((threading.get_ident(), thread.callbacks.runs_here))], None)
    assert thread.callbacks.wait(DEADLINE_S * 1_000)
    ((ran_on, is_callback),) = told
    assert ran_on != threading.get_ident()
    assert is_callback
    assert not thread.callbacks.runs_here


def test_a_callback_that_is_added_while_the_thread_ends_may_close(loop):
    """Its own thread ran it before the sender's last ones, and waited for the sender, which waited for it."""
    with started(loop) as thread:
        callbacks, begun, closed = thread.callbacks, threading.Event(), threading.Event()

        def close(_):
            begun.set()
            thread.close(600_000)
            closed.set()

        class AddedJustBefore:
            lock, added = threading.Lock(), False

            def __enter__(self):
                if loop.aborted_with is not None and not self.added:
                    self.added = True
                    callbacks.add([close], None)
                    begun.wait(0.3)
                self.lock.acquire()

            def __exit__(self, *_):
                self.lock.release()

        callbacks._runs = AddedJustBefore()
        thread.close(0)
        assert closed.wait(DEADLINE_S)
