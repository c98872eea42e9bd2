"""Callers, drains, give-backs, expiries, mutes, new leaders and flushes in any order, also in the middle of an append.

Each row gets into one batch, once and in order; whatever may go is offered to the sender; memory is right to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_kafka_sink.common.model import NO_LEADER, TopicPartition
from spark_kafka_sink.errors import BufferExhaustedError, KafkaTimeoutError
from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.producer import rows as append_rows
from spark_kafka_sink.producer.accumulator import DrainMode, Flush, PartitionQueue
from spark_kafka_sink.producer.producer_batch import ProducerBatch, RecordRange
from spark_kafka_sink.producer.sequences import Sequences
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import TOPIC, Engine

PARTITIONS = 3
NODES = 2
BATCH_SIZE = 300
LINGER_MS = 10
DELIVERY_TIMEOUT_MS = 200
MAX_REQUEST_SIZE = 700
BUFFER_MEMORY = 12_000
MOST_ROWS = 12

partitions = st.integers(0, PARTITIONS - 1)
rows_to_append = st.lists(st.tuples(partitions, st.integers(0, 120)), min_size=1, max_size=MOST_ROWS)
events = st.sampled_from(
    ["drain", "append", "time", "flush", "mute", "admit", "expire", "leader", "answer", "return", "give up"]
)


class EncodingFailedError(Exception):
    pass


@dataclass
class Rows:
    """One append; ``numbers`` of its rows, in the caller's order."""

    machine: AccumulatorMachine
    numbers: Sequence[int]
    error: None = None
    first_row = 0
    codes = ()

    def expect(self, rows: int) -> None:
        pass

    def fail(self, error: Exception) -> None:
        raise AssertionError("encoding fails before rows are expected")

    def batch_completed(self, batch: ProducerBatch, share: RecordRange) -> None:
        numbers = set(_numbers(share))
        assert not numbers & self.machine.settled, "settled twice"
        self.machine.settled |= numbers
        if batch.error is None:
            assert numbers <= self.machine.sent


def _numbers(share: RecordRange) -> list[int]:
    """Of the rows, in the order they were encoded."""
    part: Any = share.listener
    return [part.receipt.numbers[part.row_of(share.start + row)] for row in range(share.rows)]


class AccumulatorMachine(RuleBasedStateMachine):
    codec = "none"

    @initialize()
    def start(self) -> None:
        engine = self.engine = Engine(
            PARTITIONS,
            NODES,
            batch_size=BATCH_SIZE,
            linger_ms=LINGER_MS,
            request_timeout_ms=DELIVERY_TIMEOUT_MS - LINGER_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_request_size=MAX_REQUEST_SIZE,
            buffer_memory=BUFFER_MEMORY,
            max_block_ms=0,
            compression_type=self.codec,
        )
        engine.connect()
        self.clock = engine.clock
        self.accumulator = engine.parts.accumulator
        self.snapshot = engine.parts.metadata.snapshot
        self.sequences = Sequences(False)
        self.written = 0
        self.encoding: set[int] = set()
        self.taken: set[int] = set()
        self.sent: set[int] = set()
        self.settled: set[int] = set()
        self.last_sent = [-1] * PARTITIONS
        self.outstanding: list[list[ProducerBatch]] = [[] for _ in range(PARTITIONS)]
        self.in_flight: list[list[ProducerBatch]] = [[] for _ in range(PARTITIONS)]
        self.flushes: list[tuple[Any, set[int]]] = []
        self.admissions = [DrainMode.OPEN] * PARTITIONS
        self.meanwhile: list[Callable[[], None]] = []

        encode = append_rows.encode_records

        def after_events(*arguments: Any) -> Any:
            events, self.meanwhile = self.meanwhile, []
            for event in events:
                event()
            return encode(*arguments)

        self.patches = ExitStack()
        self.patches.enter_context(mock.patch.object(append_rows, "encode_records", after_events))

    # What callers do

    @rule(rows=rows_to_append, meanwhile=st.lists(events, max_size=4), fails=st.booleans(), data=st.data())
    def append(self, rows: list[tuple[int, int]], meanwhile: list[str], fails: bool, data: st.DataObject) -> None:
        """``meanwhile`` is what happens between the claim and the end of encoding, which ``fails`` at last, or not."""
        self.meanwhile = [lambda event=event: self.happens(event, data) for event in meanwhile]
        if fails and meanwhile:
            self.meanwhile.append(self.fail)
        self.append_rows(rows)
        self.meanwhile = []

    def fail(self) -> None:
        raise EncodingFailedError

    def append_rows(self, rows: list[tuple[int, int]]) -> None:
        numbers = range(self.written, self.written + len(rows))
        self.written += len(rows)
        values = [b"%06d" % number + b"v" * size for number, (_, size) in zip(numbers, rows, strict=True)]
        columns = RecordColumns(value=pa.array(values, pa.binary()))
        chosen = np.array([partition for partition, _ in rows], np.int32)
        receipt: Any = Rows(self, numbers)
        self.encoding.update(numbers)
        try:
            self.engine.parts.appender.append(TopicColumn.of(TOPIC), columns, chosen, receipt)
            self.taken.update(numbers)
        except (BufferExhaustedError, EncodingFailedError):
            pass
        finally:
            self.encoding.difference_update(numbers)

    @rule()
    def flush_begins(self) -> None:
        self.flushes.append((self.accumulator.begin_flush(Flush()), self.unsettled() | self.encoding))

    @precondition(lambda self: self.flushes)
    @rule()
    def flush_ends(self) -> None:
        begun, rows = self.flushes.pop()
        if not rows & (self.unsettled() | self.encoding):
            self.accumulator.await_flush(begun, 0)
        else:
            with pytest.raises(KafkaTimeoutError):
                self.accumulator.await_flush(begun, 0)

    # What the sender does

    @rule()
    def drain(self) -> None:
        readiness = self.accumulator.ready(self.snapshot, self.clock.now())
        for node in readiness.nodes:
            while batches := self.accumulator.drain(node, self.clock.now()):
                self.check_request(node, batches)
                for batch in batches:
                    self.send(batch)
        for partition, queue in enumerate(self.queues()):
            assert not self.must_go(partition, queue), "it may go, and nobody offers it to the sender"

    @precondition(lambda self: not any(self.in_flight))
    @rule()
    def a_batch_is_undrained(self) -> None:
        readiness = self.accumulator.ready(self.snapshot, self.clock.now())
        for node in readiness.nodes:
            for batch in self.accumulator.drain(node, self.clock.now()):
                if batch.header is None:
                    self.accumulator.undrain(batch)
                    self.admissions[batch.partition.partition] = DrainMode.MUTED
                else:
                    self.send(batch)

    @rule(partition=partitions, delivered=st.booleans())
    def an_answer_comes(self, partition: int, delivered: bool) -> None:
        if self.in_flight[partition]:
            batch = self.in_flight[partition].pop(0)
            self.complete(batch, None if delivered else KafkaTimeoutError("refused"))

    @rule(partition=partitions, backoff_ms=st.sampled_from([0, 5, 50]))
    def batches_return(self, partition: int, backoff_ms: float) -> None:
        if self.in_flight[partition]:
            self.in_flight[partition].clear()
            self.accumulator.reenqueue(self.outstanding[partition], self.clock.now() + backoff_ms)

    @rule()
    def expire(self) -> None:
        now = self.clock.now()
        for batch in self.accumulator.expire(now):
            assert batch.created + DELIVERY_TIMEOUT_MS <= now
            in_flight = self.in_flight[batch.partition.partition]
            if batch in in_flight:  # the sender awaits its response no more
                in_flight.remove(batch)
            self.complete(batch, KafkaTimeoutError("expired"))
        assert self.accumulator.next_expiry > now

    @rule()
    def everything_queued_is_given_up(self) -> None:
        for batch in self.accumulator.drain_all():
            self.complete(batch, KafkaTimeoutError("aborted"))

    @rule(partition=partitions, admission=st.sampled_from(DrainMode))
    def set_drain_mode(self, partition: int, admission: DrainMode) -> None:
        self.admissions[partition] = admission
        self.accumulator.set_drain_mode(TopicPartition(TOPIC, partition), admission)

    @rule(partition=partitions, leader=st.sampled_from([NO_LEADER, *range(NODES)]))
    def the_leader_changes(self, partition: int, leader: int) -> None:
        info = self.snapshot.topics[TOPIC]
        leaders = (*info.leaders[:partition], leader, *info.leaders[partition + 1 :])
        topics = MappingProxyType({TOPIC: replace(info, leaders=leaders)})
        generation = self.snapshot.generation + 1
        self.snapshot = replace(self.snapshot, generation=generation, changed=generation, topics=topics)

    @rule(ms=st.sampled_from([1, LINGER_MS, 50, DELIVERY_TIMEOUT_MS]))
    def time_passes(self, ms: float) -> None:
        self.clock.advance(ms)

    # What must hold

    @invariant()
    def memory_is_right_to_the_byte(self) -> None:
        batches = self.incomplete()
        holds = {batch.shared_buffer for batch in batches if batch.shared_buffer is not None}
        kept = sum(batch.own_bytes for batch in batches) + sum(hold.size for hold in holds)
        assert self.accumulator.pool.available == BUFFER_MEMORY - kept >= 0

    @invariant()
    def a_batch_is_incomplete_as_long_as_rows_of_it_are_not_settled(self) -> None:
        shares = [share for batch in self.incomplete() for share in batch.record_ranges]
        rows = [row for share in shares for row in _numbers(share)]
        assert sorted(rows) == sorted(self.unsettled())

    def teardown(self) -> None:
        if not hasattr(self, "patches"):
            return
        self.patches.close()
        for begun, _ in self.flushes:
            self.accumulator.end_flush(begun)
        for partition in range(PARTITIONS):
            self.the_leader_changes(partition, 0)
            self.set_drain_mode(partition, DrainMode.OPEN)
        self.time_passes(LINGER_MS + 50)
        self.drain()
        for partition in range(PARTITIONS):
            while self.in_flight[partition]:
                self.an_answer_comes(partition, True)
        assert not self.incomplete()
        assert self.settled == self.taken
        assert self.accumulator.pool.available == BUFFER_MEMORY

    # How

    def happens(self, event: str, data: st.DataObject) -> None:
        partition = data.draw(partitions)
        {
            "drain": self.drain,
            "append": lambda: self.append_rows(data.draw(rows_to_append)),
            "time": lambda: self.time_passes(LINGER_MS),
            "flush": self.flush_begins,
            "mute": lambda: self.set_drain_mode(partition, DrainMode.MUTED),
            "admit": lambda: self.set_drain_mode(partition, DrainMode.OPEN),
            "expire": self.much_time_passes,
            "leader": lambda: self.the_leader_changes(partition, data.draw(st.integers(NO_LEADER, NODES - 1))),
            "answer": lambda: self.an_answer_comes(partition, True),
            "return": lambda: self.batches_return(partition, 5),
            "give up": self.everything_queued_is_given_up,
        }[event]()

    def much_time_passes(self) -> None:
        self.time_passes(DELIVERY_TIMEOUT_MS)
        self.expire()

    def unsettled(self) -> set[int]:
        """What this machine knows of rows that were taken, without asking the accumulator."""
        return self.taken - self.settled

    def incomplete(self) -> frozenset[Any]:
        flush = self.accumulator.begin_flush(Flush())
        self.accumulator.end_flush(flush)
        return flush.batches

    def queues(self) -> list[PartitionQueue]:
        known = self.accumulator._queues
        names = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return [known.get(name) or PartitionQueue(name) for name in names]

    def must_go(self, partition: int, queue: PartitionQueue) -> bool:
        now = self.clock.now()
        admission = self.admissions[partition]
        if not queue.batches or queue.retry_at > now or admission is DrainMode.MUTED:
            return False
        if self.snapshot.leader(queue.partition) == NO_LEADER:
            return False
        head = queue.batches[0]
        if head.header is not None:
            return True
        if head.claimed or admission is DrainMode.RETRIES_ONLY:
            return False
        lingered = head.created + LINGER_MS <= now
        return head.payload is not None or lingered or bool(self.flushes) or len(queue.batches) > 1

    def check_request(self, node: int, batches: Sequence[ProducerBatch]) -> None:
        names = [batch.partition for batch in batches]
        assert len(set(names)) == len(names)
        assert all(self.snapshot.leader(name) == node for name in names)
        assert all(self.admissions[name.partition] is not DrainMode.MUTED for name in names)
        assert len(batches) == 1 or sum(batch.size for batch in batches) <= MAX_REQUEST_SIZE

    def send(self, batch: ProducerBatch) -> None:
        partition = batch.partition.partition
        if batch.payload is None:
            self.accumulator.seal(batch)
        fresh = batch.header is None
        self.sequences.send(batch)
        if fresh:
            (decoded,) = decode_batches(batch.header + b"".join(batch.payload))
            assert decoded.header.size <= BATCH_SIZE or len(decoded.records) == 1
            numbers = [int((record.value or b"")[:6]) for record in decoded.records]
            assert numbers == sorted(set(numbers))
            assert numbers[0] > self.last_sent[partition], "out of order, or sent twice"
            self.last_sent[partition] = numbers[-1]
            self.sent.update(numbers)
            self.outstanding[partition].append(batch)
        self.in_flight[partition].append(batch)
        first = len(self.in_flight[partition]) - 1
        assert self.outstanding[partition][first] is batch, "retries go first, in the order of their sequences"

    def complete(self, batch: ProducerBatch, error: Exception | None) -> None:
        if batch.header is not None:
            self.outstanding[batch.partition.partition].remove(batch)
        batch.complete(0, -1, error)
        self.accumulator.pool.release([batch])
        self.accumulator.finish([batch])


class CompressingMachine(AccumulatorMachine):
    codec = "lz4"


AccumulatorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
CompressingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

TestAccumulator = AccumulatorMachine.TestCase
TestAccumulatorThatCompresses = CompressingMachine.TestCase
