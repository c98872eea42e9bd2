"""Orders of all kinds, interrupts and whatever answers come: memory is right to the byte, and in the end all is free.

The callers of ``SequencesMachine``, with less memory and more ways in. A caller that waits runs the engine.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from opcode import opname
from types import FrameType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import BufferExhaustedError, InvalidRecordError, KafkaError, ProducerClosedError
from spark_kafka_sink.producer.accumulator import Flush
from spark_kafka_sink.producer.buffer_pool import Grant
from spark_kafka_sink.producer.inbox import SealedBatches
from spark_kafka_sink.producer.partitioner import LEFT_OUT
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.properties.test_sequences_machine import Rows, SequencesMachine
from tests.unit.scripted_engine import PARTITIONS, TOPIC, ScriptedCluster, ScriptedLoop

BUFFER_MEMORY = 6_000
MAX_BLOCK_MS = 5

_LOOKS = ("RESUME", "JUMP_BACKWARD", "CALL", "PRECALL", "SEND")
"""Where CPython runs signal handlers: when a function begins or a loop goes on, and after a call."""

strikes = st.none() | st.just(None) | st.lists(st.integers(1, 60) | st.integers(60, 600), min_size=1, max_size=2)
partitions = st.integers(0, PARTITIONS - 1)


@contextmanager
def struck(after: list[int] | None, spares: Callable[[], bool]) -> Iterator[None]:
    """``KeyboardInterrupt`` at the places where a handler may run: after so many of them, and once more after others.

    ``spares``: the engine runs, on a thread of its own in a real producer.
    """
    left = list(after or ())

    def opcode(frame: FrameType, event: str, _: object) -> Any:
        nonlocal before
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and left and not spares():
            last, before = before, opname[frame.f_code.co_code[frame.f_lasti]]
            left[0] -= last.startswith(_LOOKS) and before != "PUSH_EXC_INFO"  # the call has raised
            if not left[0]:
                del left[0]
                raise KeyboardInterrupt
        return opcode

    def call(frame: FrameType, event: str, _: object) -> Any:
        ours = left and not spares() and "/spark_kafka_sink/" in frame.f_code.co_filename
        return opcode(frame, event, _) if ours else None

    before, traced = "", sys.gettrace()
    if left:
        sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(traced)


class Cluster(ScriptedCluster):
    in_turn = False

    def turn(self, ms: float = 0) -> None:
        self.in_turn = True
        try:
            super().turn(ms)
        finally:
            self.in_turn = False


class EngineMachine(SequencesMachine):
    options: ClassVar[dict[str, object]] = {
        "buffer_memory": BUFFER_MEMORY,
        "max_block_ms": MAX_BLOCK_MS,
        "linger_ms": 10,
    }
    cluster_type = Cluster
    cluster: Cluster

    @initialize()
    def start(self) -> None:
        super().start()
        parts = self.cluster.parts
        parts.metadata.waiters.sender = ScriptedLoop(self.cluster.clock, lambda: self.cluster.turn(1))
        self.grants: list[Grant] = []
        self.flushes: list[tuple[Flush, list[set[int]]]] = []

    # What callers do

    def call(self, partition: int, count: int, put: Callable[[int], object], strike: list[int] | None) -> None:
        """``put`` rows from this number on, which may be refused for want of memory, or interrupted."""
        first = self.written[partition]
        self.written[partition] += count
        try:
            with struck(strike, lambda: self.cluster.in_turn):
                put(first)
        except (BufferExhaustedError, KeyboardInterrupt):
            self.interrupted[partition].update(range(first, first + count))
        gc.collect(0)

    @rule(
        partition=partitions,
        count=st.integers(1, 20),
        width=st.sampled_from([4, 4, 40, 300]),
        left_out=st.booleans(),
        answers=st.lists(SequencesMachine.refusals, max_size=3),
        strike=strikes,
    )
    def append(
        self,
        partition: int,
        count: int,
        answers: list[ErrorCode],
        width: int,
        left_out: bool,
        strike: list[int] | None,
    ) -> None:
        """Of few rows or of many. With ``left_out``, a large row goes before them that is not sent."""
        self.cluster.refusals[partition].extend(answers)

        def put(first: int) -> None:
            values = [b"%0*d" % (width, row) for row in range(first, first + count)]
            chosen = np.full(count + left_out, partition, np.int32)
            if left_out:
                values.insert(0, bytes(10_000))
                chosen[0] = LEFT_OUT
            rows: Any = Rows(self, partition, first, count)
            rows.first_row = -left_out
            columns = RecordColumns(value=pa.array(values, pa.binary()))
            self.cluster.parts.appender.append(TopicColumn.of(TOPIC), columns, chosen, rows)

        self.call(partition, count, put, strike)

    @rule(partition=partitions, width=st.sampled_from([4, 4, 300]), count=st.integers(1, 9), strike=strikes)
    def send(self, partition: int, width: int, count: int, strike: list[int] | None) -> None:
        def put(number: int) -> None:
            record = ProducerRecord(TOPIC, b"%0*d" % (width, number), partition=partition)
            future = self.cluster.parts.records.put(record, None, record.value)
            with struck(None, bool):
                future.add_callback(partial(self.told, partition, number))

        for _ in range(count):
            self.call(partition, 1, put, strike)

    def told(self, partition: int, number: int, metadata: object, error: Exception | None) -> None:
        (self.delivered if error is None else self.failed)[partition].add(number)

    @rule(strike=strikes, bad=st.sampled_from(["too large", "too large for the memory", "partition", "columns"]))
    def a_row_is_refused(self, strike: list[int] | None, bad: str) -> None:
        parts = self.cluster.parts
        value = bytes({"too large": 2 << 20, "too large for the memory": BUFFER_MEMORY}.get(bad, 1))
        record = ProducerRecord(TOPIC, value, partition=PARTITIONS if bad == "partition" else None)
        receipt: Any = Rows(self, 0, 0, 0)
        columns = RecordColumns(value=pa.array([b"x", value], pa.binary()))
        put: Callable[[], object] = partial(parts.records.put, record, None, value)
        if bad == "columns":
            put = partial(parts.appender.append, TopicColumn.of(TOPIC), columns, np.array([0, -2], np.int32), receipt)
        with pytest.raises((KafkaError, KeyboardInterrupt)), struck(strike, lambda: self.cluster.in_turn):
            put()
        gc.collect(0)

    @rule()
    def flush(self) -> None:
        written = [set(range(count)) - lost for count, lost in zip(self.written, self.interrupted, strict=True)]
        self.flushes.append((self.cluster.parts.begin_flush(), written))

    @rule(size=st.integers(1, BUFFER_MEMORY // 2), strike=strikes)
    def memory_is_taken(self, size: int, strike: list[int] | None) -> None:
        try:
            with struck(strike, lambda: self.cluster.in_turn):
                self.grants += self.cluster.parts.pool.take(size, MAX_BLOCK_MS)[0]
        except (BufferExhaustedError, KeyboardInterrupt):
            pass
        gc.collect(0)

    @precondition(lambda self: self.grants)
    @rule()
    def what_was_taken_is_torn_away(self) -> None:
        self.grants.clear()

    @rule(limit=st.sampled_from([76, 90, 1 << 20]))
    def the_topic_takes_smaller_batches(self, limit: int) -> None:
        self.cluster.max_message_bytes = limit

    # What must hold

    @invariant()
    def memory_is_right_to_the_byte(self) -> None:
        parts = self.cluster.parts
        batches, orders = parts.accumulator._incomplete, parts.inbox.entries[1::4]
        kept = sum(batch.own_bytes for batch in batches) + sum(each.size for each in parts.sender.intake._kept.values())
        kept += sum(each.size for each in {batch.shared_buffer for batch in batches} if each is not None)
        grants = [grant for room in parts.inbox.rooms for grant in room.grants] + self.grants
        grants += [grant for order in orders if isinstance(order, SealedBatches) for grant in order.grants]
        assert parts.pool.available == BUFFER_MEMORY - kept - sum(grant.size for grant in grants)

    @invariant()
    def a_flush_ends_when_its_rows_are_settled(self) -> None:
        for flush, written in self.flushes:
            if flush.over:
                for rows, delivered, failed in zip(written, self.delivered, self.failed, strict=True):
                    assert rows <= delivered | failed
        self.flushes = [each for each in self.flushes if not each[0].over]

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.grants.clear()
            self.cluster.max_message_bytes = 1 << 20
        super().teardown()

    def everything_is_settled(self) -> None:
        super().everything_is_settled()
        self.cluster.turn()
        assert all(flush.over for flush, _ in self.flushes)


class ClosingMachine(EngineMachine):
    """Whatever there is, ``close(0)`` fails it at once."""

    options: ClassVar[dict[str, object]] = {**EngineMachine.options, "compression_type": "lz4"}

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.grants.clear()
            self.cluster.parts.sender.abort(ProducerClosedError("closed"))
            self.cluster.parts.sender_thread.callbacks.run()
            self.everything_is_settled()
            with pytest.raises((ProducerClosedError, InvalidRecordError)):
                self.cluster.parts.records.put(ProducerRecord(TOPIC, b"v"), None, b"v")

    def everything_is_settled(self) -> None:
        super(EngineMachine, self).everything_is_settled()


EngineMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
ClosingMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

TestEngine = EngineMachine.TestCase
TestClosing = ClosingMachine.TestCase
