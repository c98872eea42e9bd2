"""Who turns the loop: the sender thread, or a caller in full swing."""

import sys
import threading
from contextlib import contextmanager

import pytest

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.errors import ProducerClosedError
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.sender.sender_thread import SenderThread
from tests.waiting import DEADLINE_S, eventually

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


def swing(thread, loop):
    """A first piece of work, and what it leads to."""
    with thread.run_inline():
        pass
    loop.turned_by.clear()


def test_a_single_piece_of_work_is_the_threads(thread, loop):
    loop.turned_by.clear()
    with thread.run_inline():
        thread.wakeup()
    eventually(lambda: loop.turned_by)
    assert set(loop.turned_by) == {SENDER}


def test_a_caller_in_full_swing_turns_the_loop_itself_while_the_thread_rests(thread, loop, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._IDLE_MS", 60_000.0)  # a busy machine takes its time
    swing(thread, loop)
    for _ in range(20):
        with thread.run_inline():
            pass
    assert loop.turned_by.count(threading.current_thread().name) >= 20
    assert loop.turned_by.count(SENDER) <= 2  # the turn that it was in


def test_the_thread_goes_on_when_the_caller_does_not_come_back(thread, loop):
    swing(thread, loop)
    with thread.run_inline():
        pass
    eventually(lambda: SENDER in loop.turned_by)


def test_what_comes_due_after_a_callers_last_turn_is_the_threads(thread, loop):
    swing(thread, loop)
    loop.comes_due = 30
    with thread.run_inline():
        pass
    loop.comes_due = 60_000
    loop.turned_by.clear()
    eventually(lambda: loop.turned_by)
    assert set(loop.turned_by) == {SENDER}


def test_a_caller_who_waits_calls_the_thread_at_once(thread, loop, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._IDLE_MS", 60_000.0)
    swing(thread, loop)
    with thread.run_inline():
        pass
    loop.turned_by.clear()
    thread.wakeup()
    eventually(lambda: SENDER in loop.turned_by)


def test_user_code_in_a_callers_turn_is_told_apart_and_may_append(thread, loop, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._IDLE_MS", 60_000.0)
    swing(thread, loop)
    with thread.run_inline():
        pass  # the thread has ended the turn that it was in
    seen = []

    def callback():
        seen.append(thread.is_current)
        with thread.run_inline():
            pass

    loop.in_turn = callback
    with thread.run_inline():
        assert not thread.is_current
    assert seen
    assert all(seen)
    assert not thread.is_current


def test_callbacks_of_a_callers_turn_run_on_the_thread_before_its_rest_is_over(thread, loop, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._IDLE_MS", 60_000.0)
    swing(thread, loop)
    with thread.run_inline():
        pass  # the thread has ended the turn that it was in
    told = []

    def complete():
        for number in range(3):
            thread.callbacks.add([lambda fate: told.append((fate, threading.current_thread().name))], number)
        assert not told

    loop.in_turn = complete
    with thread.run_inline():
        pass
    loop.in_turn = lambda: None
    assert thread.callbacks.wait(DEADLINE_S * 1_000)
    assert told == [(0, SENDER), (1, SENDER), (2, SENDER)]


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


def test_callbacks_added_after_the_thread_has_ended_run_on_another_one(loop):
    with started(loop) as thread:
        pass
    told = []
    thread.callbacks.add([lambda _: told.append(threading.get_ident())], None)
    assert thread.callbacks.wait(DEADLINE_S * 1_000)
    assert told != [threading.get_ident()]


def test_a_callback_after_the_thread_has_ended_knows_that_it_is_one(loop):
    with started(loop) as thread:
        pass
    told = []
    thread.callbacks.add([lambda _: told.append(thread.callbacks.runs_here)], None)
    assert thread.callbacks.wait(DEADLINE_S * 1_000)
    assert told == [True]
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


def test_callbacks_that_take_their_time_do_not_hold_a_caller_up(thread, loop):
    swing(thread, loop)
    entered, leave, callback_left = threading.Event(), threading.Event(), threading.Event()

    def callback(_):
        entered.set()
        leave.wait(DEADLINE_S)
        callback_left.set()

    thread.callbacks.add([callback], None)
    assert entered.wait(DEADLINE_S)
    swing(thread, loop)
    with thread.run_inline():
        pass
    assert not callback_left.is_set(), "the caller waited for the callback"
    leave.set()


def test_ctrl_c_in_a_callers_turn_ends_the_thread_and_is_raised(loop, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._IDLE_MS", 60_000.0)

    def interrupt():
        if threading.current_thread().name != SENDER:
            raise KeyboardInterrupt

    with started(loop) as thread:
        swing(thread, loop)
        loop.in_turn = interrupt
        with pytest.raises(KeyboardInterrupt), thread.run_inline():
            pass
        eventually(lambda: not thread.is_alive())
    assert isinstance(loop.aborted_with, ProducerClosedError)
    assert isinstance(loop.aborted_with.__cause__, KeyboardInterrupt)


def test_what_fails_in_a_callers_turn_is_logged_and_the_thread_goes_on(thread, loop, caplog, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._IDLE_MS", 60_000.0)

    def fail():
        if threading.current_thread().name != SENDER:
            raise ArithmeticError("a bug")

    swing(thread, loop)
    loop.in_turn = fail
    with thread.run_inline():
        pass
    assert "ArithmeticError: a bug" in caplog.text
    loop.turned_by.clear()
    eventually(lambda: SENDER in loop.turned_by)
    assert thread.is_alive()


def test_failed_turns_in_a_row_without_a_completed_batch_end_the_thread(loop, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.sender.sender_thread._PAUSE_MS", 1.0)

    def fail_with_progress():
        loop.completed += 1
        raise ArithmeticError("a bug")

    with started(loop) as thread:
        loop.turned_by.clear()
        loop.comes_due = 0
        loop.in_turn = fail_with_progress
        thread.wakeup()
        eventually(lambda: thread.wakeup() or len(loop.turned_by) > 50)
        assert thread.is_alive()
        loop.in_turn = lambda: 1 / 0
        eventually(lambda: thread.wakeup() or not thread.is_alive())
    assert "gave up after 20 failed iterations in a row: ZeroDivisionError" in str(loop.aborted_with)


def test_work_that_fails_is_not_sent(thread, loop):
    swing(thread, loop)
    with pytest.raises(KeyError), thread.run_inline():
        raise KeyError
    assert threading.current_thread().name not in loop.turned_by


def test_a_caller_does_not_turn_for_a_thread_that_has_died(loop):
    with started(loop) as thread:
        swing(thread, loop)
        loop.in_turn = lambda: sys.exit(1)
        thread.wakeup()
        eventually(lambda: not thread.is_alive())
        loop.turned_by.clear()
        swing(thread, loop)
        with thread.run_inline():
            pass
    assert not loop.turned_by
    assert isinstance(loop.aborted_with, ProducerClosedError)
