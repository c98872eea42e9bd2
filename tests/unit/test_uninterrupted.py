"""Signals wait for the end of a block, at whatever line of it or of the shield itself they strike."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from spark_kafka_sink.common import interrupts
from spark_kafka_sink.common.interrupts import interruptible, uninterrupted
from spark_kafka_sink.common.waiting import Sleeper
from tests.unit.interrupts import traced

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Program:
    """Its handlers raise. ``ran``: the signals whose handler has run."""

    def __init__(self) -> None:
        self.ran: list[int] = []

    def handle(self, number: int, frame: object) -> None:
        self.ran.append(number)
        raise ArithmeticError(number)


@pytest.fixture
def program():
    made = Program()
    before = {number: signal.signal(number, made.handle) for number in HELD}
    yield made
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in HELD]


def test_each_handler_runs_once_and_in_order_after_the_block_also_after_one_that_raised(program):
    def block() -> None:
        with uninterrupted():
            for number in reversed(HELD):
                signal.raise_signal(number)
            with uninterrupted():
                signal.raise_signal(signal.SIGUSR1)
            ran_in_block.extend(program.ran)
            ran_in_block.append("its end")

    before, ran_in_block = handlers(), []
    with pytest.raises(ArithmeticError) as raised:
        block()
    assert ran_in_block == ["its end"]
    assert program.ran == [*reversed(HELD), signal.SIGUSR1]
    assert raised.value.args == (signal.SIGUSR1,)
    assert handlers() == before


def test_signals_with_no_handler_of_python_are_left_alone(program):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with uninterrupted():
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


@pytest.mark.parametrize("ends", ["a wait", "code of the user"])
def test_in_the_block_a_signal_ends(program, ends):
    undone = []

    def block() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            try:
                if ends == "a wait":
                    Sleeper().wait(60_000)
                with interruptible():
                    raise AssertionError("the handler should have run")
            except ArithmeticError:
                signal.raise_signal(signal.SIGINT)
                undone.append("all")

    with pytest.raises(ArithmeticError):
        block()
    assert undone == ["all"]
    assert program.ran == [signal.SIGTERM, signal.SIGINT]


def test_on_another_thread_signals_do_not_wait(program):
    def on_another_thread() -> None:
        with uninterrupted(), interruptible():
            blocked.set()
            done.wait(60)

    blocked, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=on_another_thread)
    thread.start()
    assert blocked.wait(60)
    with pytest.raises(ArithmeticError):
        signal.raise_signal(signal.SIGINT)
    done.set()
    thread.join(60)


def strike_at(number: int, call: Callable[[], None]) -> bool:
    """Whether ``call`` comes to a ``number``-th line of the shield, where two signals strike, one after the other."""
    left = [number]

    def strike(_frame: object) -> None:
        left[0] -= 1
        if left[0] in (0, -1):
            signal.raise_signal(HELD[left[0]])

    with suppress(ArithmeticError), traced(lambda code: code.co_filename == interrupts.__file__, strike):
        call()
    return left[0] <= 0


def test_a_signal_at_each_line_of_the_shield_runs_its_handler_once(program):
    def blocks() -> None:
        with uninterrupted():
            with uninterrupted():
                pass
            with interruptible():
                pass

    before = handlers()
    number = 1
    while strike_at(number, blocks):
        assert len(program.ran) in (1, 2)
        assert len(set(program.ran)) == len(program.ran)
        program.ran.clear()
        with uninterrupted():
            pass
        assert handlers() == before
        with pytest.raises(ArithmeticError):
            signal.raise_signal(signal.SIGUSR1)
        assert program.ran == [signal.SIGUSR1]
        program.ran.clear()
        number += 1
    assert number > 40


def test_incident_a_child_that_another_thread_forked_in_a_block_never_ran_its_handlers_again(program):
    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            with suppress(ArithmeticError):
                signal.raise_signal(signal.SIGTERM)
            os._exit(len(program.ran))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    codes: list[int] = []
    with uninterrupted():
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join(60)
    assert codes == [1]


def test_incident_a_partitioner_that_chained_a_handler_chained_the_recorder(program):
    with uninterrupted(), interruptible():
        assert signal.getsignal(signal.SIGTERM) == program.handle


def test_incident_a_thousand_recorded_signals_were_too_many(program):
    def block() -> None:
        with uninterrupted():
            for _ in range(1_200):
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(ArithmeticError):
        block()
    assert len(program.ran) == 1_200


def test_incident_a_signal_at_the_edge_of_a_wait_kept_later_ones_back(program):
    def wait() -> None:
        with uninterrupted(), interruptible():
            pass

    for number in range(1, 60):
        strike_at(number, wait)
        program.ran.clear()
        with pytest.raises(ArithmeticError):
            signal.raise_signal(signal.SIGTERM)
        assert program.ran == [signal.SIGTERM]
