"""Batches that are added, ready and drained, step by step on one thread; and the memory that callers wait for."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_LEADER, ClusterSnapshot, Node, TopicInfo, TopicPartition
from spark_kafka_sink.errors import BufferExhaustedError, ProducerClosedError
from spark_kafka_sink.producer.accumulator import Flush, NodeAvailability, RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S, eventually

ROW = 100


class Desk:
    """An accumulator with batches of ten rows (100 bytes each), a linger of 10 ms, and two nodes."""

    def __init__(self, partitions: int = 4, max_request_size: int = 1 << 20) -> None:
        self.clock = ManualClock()
        options = {
            "bootstrap.servers": "boot:9092",
            "batch.size": 61 + 10 * ROW,
            "linger.ms": 10,
            "request.timeout.ms": 500,
            "delivery.timeout.ms": 1000,
            "max.request.size": max_request_size,
            "buffer.memory": 1 << 20,
        }
        config = ProducerConfig.parse(options)
        pool = BufferPool(config.buffer_memory, self.clock)
        self.accumulator = RecordAccumulator(config, pool, ProducerMetrics(pool))
        leaders = tuple(partition % 2 for partition in range(partitions))
        nodes = {node: Node(node, f"n{node}", 9092) for node in (0, 1)}
        self.snapshot = ClusterSnapshot(1, nodes, {"t": TopicInfo("t", leaders, leaders)})

    def add(self, rows: int, partition: int = 0, created: float | None = None) -> ProducerBatch:
        """A new batch with so many rows, which lingers; full with ten rows."""
        created = self.clock.now() if created is None else created
        batch = ProducerBatch(TopicPartition("t", partition), created, 61 + 10 * ROW, 0, 10)
        batch.count, batch.size, batch.filled = rows, 61 + rows * ROW, rows == 10
        self.accumulator.add(batch)
        return batch

    def ready(self):
        return self.accumulator.ready(self.snapshot, self.clock.now())

    def drain(self, node: int = 0):
        return self.accumulator.drain(node, self.clock.now())

    def drained_counts(self, node: int = 0) -> list[int]:
        self.ready()
        return [batch.count for batch in self.drain(node)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_batch_lingers_unless_it_is_full_or_another_stands_behind_it(desk):
    lingering = desk.add(3)
    assert desk.accumulator.open_batch(lingering.partition) is lingering
    assert desk.drained_counts() == []
    desk.add(10)
    assert desk.accumulator.open_batch(lingering.partition) is None
    assert [desk.drained_counts() for _ in range(3)] == [[3], [10], []]
    last = desk.add(4)
    desk.clock.advance(10)
    assert desk.drained_counts() == [4]
    assert last.due


def test_incident_a_batch_added_after_a_younger_one_lingered_as_long_as_that(desk):
    desk.clock.advance(6)
    desk.add(2, partition=2)
    desk.add(3, created=0)
    assert desk.ready().next_check == desk.clock.now() + 4
    desk.clock.advance(4)
    assert desk.drained_counts() == [3]
    assert desk.drained_counts() == []
    desk.clock.advance(6)
    assert desk.drained_counts() == [2]


def test_drain_goes_on_where_the_last_one_stopped():
    desk = Desk(partitions=6, max_request_size=2200)
    for partition in (0, 2, 4):
        for _ in range(3):
            desk.add(10, partition)
    desk.ready()
    order = [[batch.partition.partition for batch in desk.drain()] for _ in range(5)]
    assert order == [[0, 2], [4, 0], [2, 4], [0, 2], [4]]


def test_no_batch_lingers_during_a_flush_which_ends_with_its_batches_or_their_parts(desk):
    first = desk.add(2)
    flush, given_up = Flush(), Flush(over=True)
    for each in (flush, given_up):
        desk.accumulator.begin_flush(each)
    later = desk.add(1, partition=2)
    assert desk.drained_counts() == [2, 1]
    assert desk.accumulator.flushed() == []
    first.parts = parts = (desk.add(1), desk.add(1))
    desk.accumulator.finish([first, later, parts[0]])
    assert desk.accumulator.flushed() == []
    assert [desk.drained_counts() for _ in parts] == [[1], [1]]
    desk.accumulator.finish(parts)
    assert desk.accumulator.flushed() == [flush]
    desk.add(1)
    assert desk.drained_counts() == []


def test_expiry_takes_the_old_and_leaves_the_young(desk):
    desk.add(10, 0)
    desk.add(1, 0)
    desk.clock.advance(600)
    desk.add(1, 1)
    assert desk.accumulator.expire(desk.clock.now()) == []
    desk.clock.advance(400)
    expired = desk.accumulator.expire(desk.clock.now())
    assert [batch.count for batch in expired] == [10, 1]
    desk.clock.advance(1)
    assert desk.accumulator.expire(desk.clock.now()) == expired  # until they are finished
    desk.accumulator.finish(expired)
    desk.clock.advance(1)
    assert desk.accumulator.expire(desk.clock.now()) == []
    assert desk.accumulator.next_expiry == 1600.0


def test_a_node_is_unavailable_once_it_has_kept_data_waiting_for_longer_than_the_timeout():
    nodes = NodeAvailability(100)
    nodes.update(1, False, 1_000)
    nodes.update(1, False, 1_100)
    assert nodes.unavailable == {NO_LEADER}
    nodes.update(1, False, 1_101)
    assert nodes.unavailable == {NO_LEADER, 1}


# The memory that callers take and wait for. The engine serves them.


@pytest.fixture
def pool() -> BufferPool:
    return BufferPool(1000, SystemClock())


def waiting(pool: BufferPool, size: int, granted: list[int], max_wait_ms: float = 1_000 * DEADLINE_S):
    """A thread that has begun to wait for ``size`` bytes, and keeps them."""
    kept, before = [], pool.waiting

    def take() -> None:
        with suppress(BufferExhaustedError):
            kept.append(pool.take(size, max_wait_ms))
            granted.append(size)
            held.wait(DEADLINE_S)

    held = threading.Event()
    thread = threading.Thread(target=take)
    thread.start()
    eventually(lambda: pool.waiting == before + 1)
    return held


def test_what_is_granted_lies_ready_and_goes_back_once_whatever_becomes_of_it(pool):
    grants, waited = pool.take(200, 0)
    assert (sum(grant.size for grant in grants) >= 200, waited, pool.available) == (True, False, 1000 - 4 * 62)
    for _ in range(2):
        grants[0].give_back()
    assert pool.available == 1000 - 3 * 62
    del grants  # torn away
    assert pool.available == 1000
    pool.serve()
    pool.hold(300)
    assert pool.available == 700


def test_a_wait_ends_after_max_block_ms_and_says_how_much_was_asked_and_is_free(pool):
    pool.hold(900)
    with pytest.raises(BufferExhaustedError, match=r"allocate 600 bytes within .*\(waited 50 ms\): 100 of .* 1000"):
        pool.take(600, 50)
    assert not pool.waiting
    assert pool.available == 100


def test_waiters_are_served_first_come_first_served(pool):
    """A small request behind a large one must not overtake it, or the large one starves."""
    pool.hold(1000)
    pool.serve()
    granted: list[int] = []
    large, small = waiting(pool, 800, granted), waiting(pool, 10, granted)
    assert pool.waiting
    pool.hold(-700)
    assert not pool.serve()
    time.sleep(0.05)
    assert granted == []
    pool.hold(-100)
    assert not pool.serve()
    eventually(lambda: granted == [800])
    large.set()
    eventually(lambda: pool.available == 800)
    assert pool.serve()
    eventually(lambda: granted == [800, 10])
    small.set()


def test_a_waiter_that_gives_up_lets_the_next_one_through(pool):
    pool.hold(950)
    pool.serve()
    granted: list[int] = []
    waiting(pool, 500, granted, 200)
    held = waiting(pool, 40, granted)
    eventually(lambda: pool.waiting == 1)
    assert pool.serve()
    eventually(lambda: granted == [40])
    held.set()


def test_a_closed_pool_wakes_its_waiters_with_the_reason(pool):
    threading.Timer(0.05, pool.close, [ProducerClosedError("closed")]).start()
    for size, wait_ms in ((1000, 60_000), (0, 0)):
        with pytest.raises(ProducerClosedError):
            pool.take(size, wait_ms)


def test_the_longest_max_block_ms_that_kafka_takes_is_waited_for(pool):
    """A lock's timeout cannot hold it: OverflowError instead of waiting."""
    threading.Timer(0.05, pool.serve).start()
    grants, waited = pool.take(600, 2.0**63)
    assert (waited, pool.available, len(grants)) == (True, 400, 1)
