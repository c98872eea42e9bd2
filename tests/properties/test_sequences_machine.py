"""Whatever answers come, get lost or come late: no row is written twice, and order holds but for rows reported failed.

A whole sender under a manual clock, against the TestBroker's checks of sequences.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.model import UNKNOWN_OFFSET
from spark_kafka_sink.producer.producer_batch import ProducerBatch, RecordRange
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from tests.unit.scripted_engine import PARTITIONS, TOPIC, ScriptedCluster

REQUEST_TIMEOUT_MS = 1000
DELIVERY_TIMEOUT_MS = 2500

RETRIABLE = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_enough_replicas,
    ErrorCode.request_timed_out,
    ErrorCode.corrupt_message,
)
FINAL = (ErrorCode.topic_authorization_failed, ErrorCode.invalid_record)


class Rows:
    """Rows ``first ..`` of one append to one partition; tells the machine what became of each."""

    error = None
    first_row = 0
    codes = ()

    def __init__(self, machine: SequencesMachine, partition: int, first: int, count: int) -> None:
        self.machine = machine
        self.partition = partition
        self.first = first
        self.count = count

    def expect(self, rows: int) -> None:
        pass

    def fail(self, error: Exception) -> None:
        self.machine.failed[self.partition].update(range(self.first, self.first + self.count))

    def batch_completed(self, batch: ProducerBatch, share: RecordRange) -> None:
        number_of: Any = share.listener.row_of
        rows = [self.first + number_of(share.start + row) for row in range(share.rows)]
        self.machine.settled(self.partition, rows, batch, share)


class SequencesMachine(RuleBasedStateMachine):
    idempotent = True
    in_flight = 5
    options: ClassVar[dict[str, object]] = {}
    cluster_type: ClassVar[type[ScriptedCluster]] = ScriptedCluster

    @initialize()
    def start(self) -> None:
        self.cluster = self.cluster_type(
            enable_idempotence=self.idempotent,
            max_in_flight_requests_per_connection=self.in_flight,
            batch_size=100,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            **self.options,
        )
        self.cluster.connect()
        self.written = [0] * PARTITIONS
        self.delivered: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.failed: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.interrupted: list[set[int]] = [set() for _ in range(PARTITIONS)]
        """Rows whose call has raised: they may be written or not."""

    partitions = st.integers(0, PARTITIONS - 1)
    refusals = st.sampled_from((*RETRIABLE, *FINAL, ErrorCode.message_too_large, ErrorCode.none))

    @rule(partition=partitions, count=st.integers(1, 20), answers=st.lists(refusals, max_size=3))
    def append(self, partition: int, count: int, answers: list[ErrorCode]) -> None:
        """``answers`` are what the first batches get, ``none`` among them."""
        self.cluster.refusals[partition].extend(answers)
        first = self.written[partition]
        self.written[partition] += count
        values = pa.array([b"%04d" % row for row in range(first, first + count)], pa.binary())
        chosen = np.full(count, partition, np.int32)
        rows: Any = Rows(self, partition, first, count)
        self.cluster.parts.appender.append(TopicColumn.of(TOPIC), RecordColumns(value=values), chosen, rows)

    @rule(ms=st.sampled_from([0, 0, 1, 20, 150, REQUEST_TIMEOUT_MS, DELIVERY_TIMEOUT_MS]))
    def time_passes(self, ms: float) -> None:
        self.cluster.spin(ms)

    @rule()
    def next_answer_is_lost(self) -> None:
        self.cluster.lose_next = True

    @rule()
    def next_answer_is_late(self) -> None:
        self.cluster.hold_next = True

    @rule()
    def next_request_is_late(self) -> None:
        self.cluster.stall_next = True

    @precondition(lambda self: self.cluster.held)
    @rule()
    def late_answers_come(self) -> None:
        self.cluster.release_held()

    @precondition(lambda self: self.cluster.stalled)
    @rule(data=st.data())
    def a_late_connection_goes_on(self, data: st.DataObject) -> None:
        self.cluster.resume(data.draw(st.sampled_from(sorted(self.cluster.stalled))))

    @precondition(lambda self: self.cluster.transport.open)
    @rule(data=st.data())
    def a_connection_breaks(self, data: st.DataObject) -> None:
        connection = data.draw(st.sampled_from(sorted(self.cluster.transport.open)))
        self.cluster.transport.drop(connection, "Connection reset by peer")

    @rule(partition=partitions)
    def the_leader_moves(self, partition: int) -> None:
        self.cluster.leaders[partition] = 1 - self.cluster.leaders[partition]

    @precondition(lambda self: not self.cluster.parts.accumulator.has_incomplete and not self.cluster.stalled)
    @rule(partition=partitions)
    def the_broker_forgets_its_producers(self, partition: int) -> None:
        self.cluster.logs[partition].forget_producers()

    def settled(self, partition: int, rows: list[int], batch: ProducerBatch, share: RecordRange) -> None:
        assert not (self.delivered[partition] | self.failed[partition]).intersection(rows), "settled twice"
        (self.delivered if batch.error is None else self.failed)[partition].update(rows)
        if batch.error is None and batch.base_offset != UNKNOWN_OFFSET:
            offset = batch.base_offset + share.first
            assert self.cluster.rows(partition)[offset : offset + share.rows] == rows

    @invariant()
    def nothing_is_lost_or_doubled_or_overtaken(self) -> None:
        for partition, delivered in enumerate(self.delivered):
            rows = self.cluster.rows(partition)
            assert delivered <= set(rows)
            if self.idempotent:
                assert not [row for row, times in Counter(rows).items() if times > 1]
            in_order = [row for row in dict.fromkeys(rows) if row in delivered]
            assert in_order == sorted(in_order)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        for refusals in cluster.refusals:
            refusals.clear()
        cluster.stall_next = cluster.hold_next = cluster.lose_next = False
        for connection in list(cluster.stalled):
            cluster.resume(connection)
        cluster.release_held()
        cluster.settle()
        self.nothing_is_lost_or_doubled_or_overtaken()
        self.everything_is_settled()

    def everything_is_settled(self) -> None:
        for partition, written in enumerate(self.written):
            settled = self.delivered[partition] | self.failed[partition]
            assert settled >= set(range(written)) - self.interrupted[partition]
        assert self.cluster.memory_is_free()


class OneInFlightMachine(SequencesMachine):
    in_flight = 1


class NotIdempotentMachine(SequencesMachine):
    """Rows may be there twice then; with one request in flight they still keep their order."""

    idempotent = False
    in_flight = 1


SequencesMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
OneInFlightMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
NotIdempotentMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

TestIdempotent = SequencesMachine.TestCase
TestIdempotentOneInFlight = OneInFlightMachine.TestCase
TestNotIdempotentOneInFlight = NotIdempotentMachine.TestCase
