"""Claim, publish, give back, ready and drain, step by step: no thread, so every race is played by hand."""

from __future__ import annotations

import threading
import time

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_LEADER, ClusterSnapshot, Node, TopicInfo, TopicPartition
from spark_kafka_sink.errors import BufferExhaustedError, ProducerClosedError
from spark_kafka_sink.producer.accumulator import DrainMode, NodeAvailability, RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool, Reservation
from spark_kafka_sink.producer.claim import Claim, RowSizes, RowTimes, Run
from spark_kafka_sink.producer.metrics import ProducerMetrics
from spark_kafka_sink.records.columns import HEADER_SIZE
from tests.support.manual_clock import ManualClock
from tests.support.waiting import DEADLINE_S, eventually

T0 = TopicPartition("t", 0)
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

    def claim(self, rows: int, partition: int = 0, timestamp: int = 0):
        run = Run(TopicPartition("t", partition), 0, rows)
        times = RowTimes(timestamp, timestamp, timestamp, 1, 63)
        sizes = RowSizes([run], [ROW * row for row in range(rows + 1)], 61 + 10 * ROW, times)
        claim = Claim(Reservation())
        self.accumulator.claim(claim, sizes, self.clock.now())
        return claim

    def publish(self, claim) -> bool:
        for batch in claim.filled:
            batch.buffers.append(bytes(batch.size - HEADER_SIZE))
            self.accumulator.seal(batch)
        return self.accumulator.publish(claim)

    def append(self, rows: int, partition: int = 0) -> bool:
        return self.publish(self.claim(rows, partition))

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


def test_rows_too_far_in_time_from_a_batch_do_not_join_it(desk):
    desk.publish(desk.claim(1, timestamp=1000))
    claim = desk.claim(1, timestamp=1064)
    assert [each.first for each in claim.ranges] == [0]
    assert len(claim.filled) == 1


def test_race_two_callers_and_a_drain_at_one_batch(desk):
    first = desk.claim(3)
    second = desk.claim(4)
    assert second.ranges[0].batch is not first.ranges[0].batch, "the tail was in somebody's hands"
    desk.publish(second)
    assert desk.drained_counts() == [], "what was claimed first goes first"
    desk.publish(first)
    assert desk.drained_counts() == [3], "overtaken by another batch it takes no more rows, so it need not linger"
    desk.clock.advance(10)
    assert desk.drained_counts() == [4]


def test_a_batch_that_came_due_while_it_was_claimed_wakes_the_sender_once(desk):
    desk.append(3)
    claim = desk.claim(1)
    desk.clock.advance(10)
    assert desk.drained_counts() == []
    assert desk.publish(claim)
    assert not desk.append(1), "its queue is listed: the sender is awake, or the node has no room"
    assert desk.drained_counts() == [5]


def test_a_batch_that_is_claimed_whenever_the_sender_looks_takes_no_more_rows(desk):
    """One caller with many small appends kept a due batch from the sender until it was full."""
    desk.append(1)
    claim = desk.claim(1)
    desk.clock.advance(10)
    assert desk.drained_counts() == []
    desk.publish(claim)
    claim = desk.claim(1)
    assert desk.drained_counts() == []
    desk.publish(claim)
    later = desk.claim(1)
    assert desk.drained_counts() == [3]
    assert later.opened
    desk.publish(later)


def test_incident_a_batch_that_still_lingered_was_closed_because_the_sender_looked_at_it(desk):
    """A: the partition is admitted, so its queue is listed although nothing is due. A caller claims the open batch.
    B: the sender looks at the queue. The batch took no more rows, and lingered behind the next one.
    """
    desk.append(1)
    desk.accumulator.set_drain_mode(T0, DrainMode.OPEN)
    claim = desk.claim(1)
    assert desk.drained_counts() == []
    desk.publish(claim)
    assert not desk.claim(1).opened


def test_incident_a_batch_that_the_sender_passed_by_lingered_when_what_stood_behind_it_was_given_up(desk):
    desk.append(1)
    claim = desk.claim(1)
    desk.append(1)
    assert desk.drained_counts() == []
    assert len(desk.accumulator.drain_all()) == 1
    desk.publish(claim)
    desk.claim(1)
    assert desk.drained_counts() == [2]


def test_giving_back_leaves_everything_as_it_was(desk):
    desk.append(4)
    claim = desk.claim(20)
    desk.accumulator.give_back(claim)
    desk.append(1)
    desk.clock.advance(10)
    assert desk.drained_counts() == [5]
    assert desk.drained_counts() == []


def test_incident_a_batch_published_after_a_younger_one_lingered_as_long_as_that(desk):
    older = desk.claim(3)
    desk.clock.advance(6)
    desk.append(2, partition=2)
    desk.publish(older)
    assert desk.ready().next_check == desk.clock.now() + 4
    desk.clock.advance(4)
    assert desk.drained_counts() == [3]
    assert desk.drained_counts() == []
    desk.clock.advance(6)
    assert desk.drained_counts() == [2]


def test_drain_goes_on_where_the_last_one_stopped():
    desk = Desk(partitions=6, max_request_size=2200)
    for partition in (0, 2, 4):
        desk.append(31, partition)
    desk.ready()
    order = [[batch.partition.partition for batch in desk.drain()] for _ in range(5)]
    assert order == [[0, 2], [4, 0], [2, 4], [0, 2], [4]]


def test_exhausted_memory_lets_nothing_linger(desk):
    desk.append(1)
    pool = desk.accumulator.pool
    pool.reserve(Reservation(), pool.total, 0, lambda: None)
    counts: list[list[int]] = []

    with pytest.raises(BufferExhaustedError):
        pool.reserve(Reservation(), 1, 0, lambda: counts.append(desk.drained_counts()))
    assert counts == [[1]]


def test_expiry_takes_the_old_and_leaves_the_young(desk):
    desk.append(11, 0)
    desk.clock.advance(600)
    desk.append(1, 1)
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


def test_after_an_abort_claims_fail_and_claimed_batches_are_their_callers(desk):
    desk.append(1, 1)
    desk.append(4)
    claim = desk.claim(20)
    (orphan,) = desk.accumulator.abort(ProducerClosedError("closed"))
    assert orphan.partition.partition == 1
    with pytest.raises(ProducerClosedError):
        desk.publish(claim)
    lost = desk.accumulator.give_back(claim)
    assert [batch.count for batch in lost] == [4]
    assert desk.accumulator.has_incomplete, "a flush waits until those who wait for these rows have heard"
    desk.accumulator.finish([orphan, *lost])
    assert not desk.accumulator.has_incomplete
    with pytest.raises(ProducerClosedError):
        desk.claim(1)


def test_a_node_is_unavailable_once_it_has_kept_data_waiting_for_longer_than_the_timeout():
    nodes = NodeAvailability(100)
    nodes.update(1, False, 1_000)
    nodes.update(1, False, 1_100)
    assert nodes.unavailable == {NO_LEADER}
    nodes.update(1, False, 1_101)
    assert nodes.unavailable == {NO_LEADER, 1}


# The memory that batches share: threads wait for it.


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
