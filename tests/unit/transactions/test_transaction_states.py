"""Any order of calls, records, errors and lost answers: a committed transaction is visible once and whole, an aborted
one never, and the producer always comes to an end that it tells."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from spark_kafka_sink.errors import IllegalStateError, KafkaError, ProducerFencedError, TransactionAbortableError
from spark_kafka_sink.producer.receipt import SendReceipt
from spark_kafka_sink.producer.transaction_manager import TRANSITIONS, State, Step, TransactionalCall
from spark_kafka_sink.producer.transaction_requests import ConsumerGroupMetadata, OffsetAndMetadata
from tests.unit.transactions.transactional_engine import TransactionalEngine, Trouble, partition

LOST = [Trouble.LOST_BEFORE, Trouble.LOST_AFTER, Trouble.SWALLOWED]
COORDINATOR_TROUBLES = [
    *LOST,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.concurrent_transactions,
]
TROUBLES: dict[str, list[ErrorCode | Trouble]] = {
    "find_coordinator": [*LOST, ErrorCode.coordinator_not_available],
    "init_producer_id": COORDINATOR_TROUBLES,
    "add_partitions_to_txn": [*COORDINATOR_TROUBLES, ErrorCode.topic_authorization_failed],
    "add_offsets_to_txn": [*COORDINATOR_TROUBLES, ErrorCode.group_authorization_failed],
    "txn_offset_commit": [*COORDINATOR_TROUBLES, ErrorCode.illegal_generation],
    "end_txn": [*COORDINATOR_TROUBLES, Trouble.DELAYED],
    "produce": [
        *LOST,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_leader_or_follower,
        ErrorCode.concurrent_transactions,
        ErrorCode.policy_violation,
        ErrorCode.transaction_abortable,
    ],
}
GROUP = ConsumerGroupMetadata("readers")


class Transactions(RuleBasedStateMachine):
    """``open``: the records of the open transaction; ``committed``: what must be visible, in order."""

    v2 = False

    @initialize()
    def start(self) -> None:
        self.engine = TransactionalEngine(self.v2, request_timeout_ms=1_000, delivery_timeout_ms=5_000)
        self.engine.call(Step.INIT)
        self.engine.connect()
        self.committed: dict[int, list[bytes]] = {0: [], 1: []}
        self.open: dict[int, list[bytes]] = {0: [], 1: []}
        self.offset = self.committed_offset = -1
        self.number = 0
        self.receipts: list[SendReceipt] = []
        self.pending: tuple[Step, TransactionalCall] | None = None

    @rule(trouble=st.sampled_from([(api, each) for api, some in TROUBLES.items() for each in some]))
    def plan_trouble(self, trouble: tuple[str, ErrorCode | Trouble]) -> None:
        api, how = trouble
        self.engine.troubles[api].append(how)

    @rule(node=st.integers(0, 1))
    def move_coordinator(self, node: int) -> None:
        self.engine.coordinator_node = node

    @rule()
    def deliver_delayed(self) -> None:
        self.engine.deliver_delayed()

    @rule(ms=st.sampled_from([0, 1, 10, 100, 1_000]))
    def pass_time(self, ms: int) -> None:
        self.engine.spin(ms)

    @precondition(lambda self: self.pending is None)
    @rule()
    def begin(self) -> None:
        if self.engine.state is State.READY:
            self.engine.begin()
            self.open = {0: [], 1: []}
            self.offset = self.committed_offset
        else:
            with pytest.raises(KafkaError):
                self.engine.begin()

    @precondition(lambda self: self.pending is None and self.engine.state is State.IN_TRANSACTION)
    @rule(index=st.integers(0, 1), count=st.integers(1, 40), turn=st.booleans())
    def append(self, index: int, count: int, turn: bool) -> None:
        values = [b"%06d" % (self.number + each) + b"x" * 1000 for each in range(count)]
        self.number += count
        receipt = SendReceipt()
        self.engine.append(values, index, receipt)
        self.open[index] += values
        self.receipts.append(receipt)
        if turn:
            self.engine.turn()

    @precondition(lambda self: self.pending is None and self.engine.state is State.IN_TRANSACTION)
    @rule()
    def send_offsets(self) -> None:
        self.number += 1
        offsets = {partition(0): OffsetAndMetadata(self.number)}
        try:
            self.engine.call(Step.SEND_OFFSETS, offsets=offsets, group=GROUP)
        except TransactionAbortableError:
            return
        self.offset = self.number

    @precondition(lambda self: self.pending is None)
    @rule(step=st.sampled_from([Step.COMMIT, Step.ABORT, Step.PREPARE]), wait=st.booleans())
    def end(self, step: Step, wait: bool) -> None:
        allowed = (self.engine.state, step) in TRANSITIONS
        call = self.engine.submit(step)
        self.pending = step, call
        if not allowed:
            with pytest.raises((IllegalStateError, TransactionAbortableError, ProducerFencedError)):
                self.engine.await_result(call)
            self.pending = None
        elif wait:
            self.await_end()

    @precondition(lambda self: self.pending is not None)
    @rule()
    def await_end(self) -> None:
        assert self.pending is not None
        (step, call), self.pending = self.pending, None
        try:
            self.engine.await_result(call)
        except TransactionAbortableError:
            assert self.engine.state is State.ABORTABLE_ERROR
            assert step is not Step.ABORT
            return
        if step is Step.COMMIT:
            for index, values in self.open.items():
                self.committed[index] += values
            self.committed_offset = self.offset
        if step is Step.PREPARE:
            assert {i: self.engine.open_values(i) for i in self.open} == self.open
        else:
            assert self.engine.state is State.READY

    @invariant()
    def nothing_else_is_visible(self) -> None:
        if self.pending is None:
            visible = {index: self.engine.visible(index) for index in (0, 1)}
            assert visible == self.committed

    def teardown(self) -> None:
        self.engine.troubles.clear()
        if self.pending is not None:
            self.await_end()
        if (self.engine.state, Step.ABORT) in TRANSITIONS:
            self.engine.call(Step.ABORT)
        assert self.engine.state is State.READY
        self.nothing_else_is_visible()
        assert self.engine.offsets() == ({} if self.committed_offset < 0 else {("t", 0): self.committed_offset})
        self.engine.begin()
        self.engine.append([b"last"], 0, SendReceipt())
        self.engine.call(Step.COMMIT)
        assert self.engine.visible(0) == [*self.committed[0], b"last"]
        assert not self.engine.parts.accumulator.has_incomplete
        assert self.engine.memory_is_free()
        for receipt in self.receipts:
            if receipt.error is None:
                receipt.wait(0)


class TransactionsV2(Transactions):
    v2 = True


_SETTINGS = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTransactionsV1 = Transactions.TestCase
TestTransactionsV2 = TransactionsV2.TestCase
TestTransactionsV1.settings = TestTransactionsV2.settings = _SETTINGS
