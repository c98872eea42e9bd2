from __future__ import annotations

import threading
import time

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import BufferExhaustedError, ProducerClosedError
from spark_kafka_sink.producer.buffer_pool import BufferPool, Reservation
from tests.support.waiting import DEADLINE_S, eventually


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(1000, SystemClock())


def ignore() -> None:
    pass


def waiting(pool: BufferPool, size: int, granted: list[int]) -> threading.Thread:
    """A thread that has begun to wait for ``size`` bytes."""
    waits = threading.Event()

    def take() -> None:
        pool.reserve(Reservation(), size, 1_000 * DEADLINE_S, waits.set)
        granted.append(size)

    thread = threading.Thread(target=take)
    thread.start()
    assert waits.wait(DEADLINE_S)
    return thread


def test_a_wait_ends_after_max_block_ms_and_says_how_much_was_asked_and_is_free(pool):
    pool.reserve(Reservation(), 900, 0, ignore)
    with pytest.raises(BufferExhaustedError, match=r"allocate 200 bytes within .*\(waited 50 ms\): 100 of .* 1000"):
        pool.reserve(Reservation(), 200, 50, ignore)
    assert not pool.exhausted
    assert pool.available == 100


def test_waiters_are_served_first_come_first_served(pool):
    """A small request behind a large one must not overtake it, or the large one starves."""
    first, second, third = Reservation(), Reservation(), Reservation()
    pool.reserve(first, 500, 0, ignore)
    pool.reserve(second, 300, 0, ignore)
    pool.reserve(third, 200, 0, ignore)
    granted: list[int] = []
    large = waiting(pool, 800, granted)
    small = waiting(pool, 10, granted)
    pool.cancel(first)
    time.sleep(0.05)
    assert granted == []
    pool.cancel(second)
    large.join(DEADLINE_S)
    pool.cancel(third)
    small.join(DEADLINE_S)
    assert granted == [800, 10]


def test_a_waiter_that_gives_up_lets_the_next_one_through(pool):
    pool.reserve(Reservation(), 950, 0, ignore)
    granted: list[int] = []
    with pytest.raises(BufferExhaustedError):
        pool.reserve(Reservation(), 500, 20, lambda: waiting(pool, 40, granted))
    eventually(lambda: granted == [40])


def test_a_closed_pool_wakes_its_waiters_with_the_reason(pool):
    pool.reserve(Reservation(), 1000, 0, ignore)

    def close() -> None:
        threading.Timer(0.05, pool.close, [ProducerClosedError("closed")]).start()

    with pytest.raises(ProducerClosedError):
        pool.reserve(Reservation(), 10, 60_000, close)
    with pytest.raises(ProducerClosedError):
        pool.reserve(Reservation(), 0, 0, ignore)


def test_the_longest_max_block_ms_that_kafka_takes_is_waited_for(pool):
    """A lock's timeout cannot hold it: OverflowError instead of waiting."""
    reservation = Reservation()
    pool.reserve(reservation, 1000, 0, ignore)
    threading.Timer(0.05, lambda: pool.cancel(reservation)).start()
    pool.reserve(Reservation(), 600, 2.0**63, ignore)
    assert pool.available == 400
