"""What one transactional producer is about to do, and how far it has come (Kafka: ``TransactionManager``).

Owned by the sender thread, but for ``submit``, which any thread may call, and ``state``, ``error`` and ``fence``,
which any thread may read: only the sender thread writes them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.accumulator.accumulator import DrainMode, Flush, RecordAccumulator
from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import (
    BrokerError,
    IllegalStateError,
    KafkaError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
    unexpected,
)
from spark_kafka_sink.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import PRODUCE_VERSIONS as PRODUCE_V2
from spark_kafka_sink.network.error_table import TRANSACTIONAL_PRODUCE, Action, action
from spark_kafka_sink.transactions import messages
from spark_kafka_sink.transactions.calls import CallEnd, CoordinatorCalls
from spark_kafka_sink.transactions.commands import Command
from spark_kafka_sink.transactions.messages import Subject
from spark_kafka_sink.transactions.partitions import TransactionPartitions
from spark_kafka_sink.transactions.sequences import Sequences
from spark_kafka_sink.transactions.states import FLUSHING, SENDING, TRANSITIONS, State, Step
from spark_kafka_sink.transactions.values import (
    END_TXN_V1,
    END_TXN_V2,
    TRANSACTION_VERSION_FEATURE,
    PreparedTransaction,
    TransactionalIdentity,
)

_log = logging.getLogger("spark_kafka_sink.sender")

PRODUCE_V1: Final = (9, 11)
"""From version 12 on Produce adds partitions to the transaction by itself (KIP-890)."""


class TransactionManager:
    """``submit`` commands; ``take_commands``, then ``advance``, once a turn."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        sequences: Sequences,
        client: NetworkClient,
        calls: CoordinatorCalls,
    ) -> None:
        self.state = State.UNINITIALIZED
        self.error: KafkaError | None = None
        assert config.transactional_id is not None
        self._subject = Subject(config.transactional_id)
        self._timeout_ms = config.transaction_timeout_ms
        self._accumulator = accumulator
        self._sequences = sequences
        self._client = client
        self._calls = calls
        self._commands: deque[Command] = deque()
        self._losses: deque[Exception] = deque()
        self._ended_by: Exception | None = None
        self._pending: Command | None = None
        self._sending_offsets: dict[Command, None] = {}
        self._flush = Flush()
        self._flushing = False
        self._partitions = TransactionPartitions(accumulator)
        self._started = False
        self._confirmed = False
        self._v2 = False

    # Any thread

    @property
    def fence(self) -> TransactionalIdentity | None:
        """Under what the next transaction is written; None before there is a producer id."""
        subject = self._subject
        if subject.identity is NO_IDENTITY:
            return None
        return TransactionalIdentity(subject.transactional_id, *subject.identity, self._end_txn_version)

    def submit(self, command: Command) -> None:
        """The sender must be woken for it."""
        self._commands.append(command)
        if self._ended_by is not None:
            self._refuse_commands(self._ended_by)

    def records_lost(self, error: Exception) -> None:
        """Records of the open transaction could not even be appended."""
        self._losses.append(error)

    def check_in_transaction(self) -> None:
        """Raises what forbids to append records now."""
        if self.state is not State.IN_TRANSACTION:
            raise self._refusal("append records")

    # The sender thread's loop

    @property
    def may_send(self) -> bool:
        return self.state in SENDING

    @property
    def is_ending(self) -> bool:
        """Whether a transaction is being committed or aborted."""
        return self.state in (State.COMMITTING, State.ENDING, State.ABORTING)

    @property
    def transactional_id(self) -> str:
        return self._subject.transactional_id

    @property
    def produce_versions(self) -> tuple[int, int]:
        return PRODUCE_V2 if self._v2 else PRODUCE_V1

    def take_commands(self) -> None:
        """A caller notes what it lost, then submits its commit. Here in reverse: take the commit, then the losses."""
        while self._commands and self._ended_by is None:
            command = self._commands.popleft()
            try:
                self._take_losses()
                self._take(command)
            except Exception as error:
                command.listener.answered(None, unexpected(error))
                raise
        self._take_losses()

    def advance(self, now: float) -> float:
        """Go on with what is under way; says when time alone will make a difference (monotonic ms)."""
        if self.state in SENDING and (partitions := self._partitions.ask()):
            self._add_partitions(partitions)
        if self._flushing and not (
            self._calls.busy or self._accumulator.has_incomplete or self._sequences.any_in_flight
        ):
            self._flushed()
        return self._calls.advance(now) if self._calls.busy else NEVER

    def sendable(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """Those of the drained batches that may go now: with the second protocol all, Produce adds their partitions."""
        if self._v2:
            self._started = True
            return list(batches)
        return self._partitions.sendable(batches)

    def batch_failed(self, error: Exception) -> None:
        """A batch was given up: its transaction must not be committed."""
        fatal = isinstance(error, UnsupportedVersionError) or (
            isinstance(error, BrokerError) and action(TRANSACTIONAL_PRODUCE, error.code) >= Action.FAIL
        )
        if fatal and isinstance(error, KafkaError):
            self._break(error)
        elif (self.state, Step.FAIL) in TRANSITIONS:
            self._fail(error)

    def rejection(self) -> KafkaError:
        """Why batches that are not sent in this state fail."""
        if self.state is State.ABORTABLE_ERROR:
            return TransactionAbortedError(f"Not sent, because the transaction has failed: {self.error}")
        if self.state is State.ABORTING:
            return TransactionAbortedError("Not sent, because the transaction was aborted")
        return self._refusal("append records")

    def close(self) -> None:
        """The producer closes with time left: an open transaction is aborted, a prepared one stays open."""
        if self.state in (State.IN_TRANSACTION, State.PREPARING, State.ABORTABLE_ERROR):
            _log.info("Aborting the open transaction of %s: the producer is closed", self.transactional_id)
            self._abort(None)

    def end(self, error: Exception) -> None:
        """The sender is at its end: every command fails, now and later."""
        self._ended_by = error
        self._give_up(error)
        self._refuse_commands(error)

    def _refuse_commands(self, error: Exception) -> None:
        """On any thread, after the end."""
        while True:
            try:
                command = self._commands.popleft()
            except IndexError:
                return
            command.listener.answered(None, error)

    def _take_losses(self) -> None:
        while self._losses:
            self.batch_failed(self._losses.popleft())

    # Commands

    def _take(self, command: Command) -> None:
        if (self.state, command.step) not in TRANSITIONS:
            command.listener.answered(None, self._refusal(command.step.value))
            return
        match command.step:
            case Step.INIT:
                self._begin_step(command)
                self._init()
            case Step.INIT_AS:
                assert command.transactional_id is not None
                self._begin_step(command)
                self._subject = Subject(command.transactional_id)
                self._init()
            case Step.ADOPT:
                assert command.fence is not None
                self._adopt(command.fence)
                self._begin_step(command)
                self._answer(command.fence, None)
            case Step.BEGIN:
                self._begin(command)
            case Step.SEND_OFFSETS:
                self._send_offsets(command)
            case Step.ABORT:
                self._abort(command)
            case _:
                self._begin_step(command)

    def _begin_step(self, command: Command) -> None:
        self._pending = command
        self._move(command.step)

    def _begin(self, command: Command) -> None:
        self._started = self._confirmed = False
        node = self._calls.coordinator(messages.transaction_key(self.transactional_id))
        if node is not None:
            self._choose_protocol(node.id)
        self._begin_step(command)
        self._answer(None, None)

    def _send_offsets(self, command: Command) -> None:
        group = command.group
        assert group is not None

        def committed(end: CallEnd) -> None:
            del self._sending_offsets[command]
            self._judge(end)
            command.listener.answered(None, None if end.error is None else self.error)

        def added(end: CallEnd) -> None:
            if end.error is None:
                self._confirmed = True
                commit(messages.TXN_OFFSET_COMMIT_V1)
            else:
                committed(end)

        def commit(versions: tuple[int, int]) -> None:
            call = messages.txn_offset_commit(self._subject, versions, command.offsets, group, committed)
            self._calls.start(call)

        self._started = True
        self._sending_offsets[command] = None
        if self._v2:
            commit(messages.TXN_OFFSET_COMMIT_V2)
        else:
            self._calls.start(messages.add_offsets(self._subject, group, added))

    def _abort(self, command: Command | None) -> None:
        self._give_up(TransactionAbortedError("The transaction is being aborted"))
        self._pending = command
        self._move(Step.ABORT)

    # What the calls bring

    def _init(self) -> None:
        self._calls.start(messages.init_producer_id(self._subject, self._timeout_ms, self._initialized))

    def _initialized(self, end: CallEnd) -> None:
        if end.error is not None:
            self._break(end.error)
            return
        self._choose_protocol(end.node_id)
        self._restart(ProducerIdentity(int(end.body.producer_id), int(end.body.producer_epoch)))
        self._move(Step.INITIALIZED)
        self._answer(self.fence, None)

    def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        def added(end: CallEnd) -> None:
            self._judge(end)
            if end.error is None:
                self._confirmed = True
                self._partitions.added(partitions)

        self._started = True
        self._calls.start(messages.add_partitions(self._subject, partitions, added))

    def _flushed(self) -> None:
        """No batch is incomplete and no call under way: PREPARING, COMMITTING or ABORTING can come to its end."""
        if self.state is State.PREPARING:
            self._move(Step.FLUSHED)
            prepared = PreparedTransaction(self.transactional_id, *self._identity, self._end_txn_version)
            self._answer(prepared, None)
        elif not self._started:
            self._ended(self._identity)
        else:
            commit = self.state is State.COMMITTING
            if commit:
                self._move(Step.FLUSHED)
            self._calls.start(messages.end_txn(self._subject, self._end_txn_version, commit, self._answered_end))

    def _answered_end(self, end: CallEnd) -> None:
        if end.error is None:
            self._ended(messages.identity_after(end.body, self._identity))
        elif end.code is ErrorCode.invalid_txn_state and self.state is State.ABORTING and not self._confirmed:
            # The coordinator never heard of this transaction: its partitions were not added, or that was not answered.
            self._ended(self._identity)
        else:
            self._judge(end)

    def _ended(self, identity: ProducerIdentity) -> None:
        lost_sequences = bool(self._sequences.to_resolve())
        if identity != self._identity:
            self._restart(identity)
        elif self.state is State.ABORTING and lost_sequences:
            self._move(Step.BUMP)
            self._init()
            return
        self._readmit()
        self._move(Step.ENDED)
        self._answer(None, None)

    def _judge(self, end: CallEnd) -> None:
        if end.error is None:
            return
        step = Step.REFUSED if self.state is State.ENDING else Step.FAIL
        if end.action is Action.ABORT and (self.state, step) in TRANSITIONS and self.state is not State.ABORTING:
            self._fail(end.error, step)
        else:
            self._break(end.error)

    # State

    @property
    def _identity(self) -> ProducerIdentity:
        return self._subject.identity

    @property
    def _end_txn_version(self) -> int:
        return END_TXN_V2 if self._v2 else END_TXN_V1

    def _choose_protocol(self, node_id: int) -> None:
        """By what the coordinator's ApiVersions said; without a connection to it the choice stands."""
        versions = self._client.api_versions(node_id)
        if versions is not None:
            self._v2 = versions.features.get(TRANSACTION_VERSION_FEATURE, 0) >= 2

    def _adopt(self, fence: TransactionalIdentity) -> None:
        self._v2 = fence.end_txn_version >= END_TXN_V2
        self._restart(fence.identity)

    def _restart(self, identity: ProducerIdentity) -> None:
        """Another id or epoch: every sequence starts at 0."""
        self._readmit()
        self._sequences.restart(identity)
        self._subject = Subject(self.transactional_id, identity)
        _log.debug("%s", self.fence)

    def _readmit(self) -> None:
        """What was muted for this transaction's sake may go in the next."""
        self._partitions.clear()
        for partition in self._sequences.to_resolve():
            self._accumulator.set_drain_mode(partition, DrainMode.OPEN)

    def _fail(self, error: Exception, step: Step = Step.FAIL) -> None:
        self._move(step)
        if self.state is not State.ABORTABLE_ERROR:
            return
        if self.error is None:
            self.error = TransactionAbortableError(f"The transaction has failed, abort it: {error}")
            self.error.__cause__ = error
        self._answer(None, self.error)

    def _break(self, error: KafkaError) -> None:
        self._move(Step.BREAK)
        self.error = error
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Whatever is under way is not asked for again."""
        self._calls.stop()
        self._partitions.stop()
        self._answer(None, error)
        while self._sending_offsets:
            self._sending_offsets.popitem()[0].listener.answered(None, error)

    def _move(self, step: Step) -> None:
        self.state = TRANSITIONS[self.state, step]
        if step in (Step.ENDED, Step.INITIALIZED):
            self.error = None
        flush = self.state in FLUSHING
        if flush and not self._flushing:
            self._accumulator.begin_flush(self._flush)
        elif self._flushing and not flush:
            self._accumulator.end_flush(self._flush)
        self._flushing = flush

    def _answer(self, result: Any, error: Exception | None) -> None:
        command, self._pending = self._pending, None
        if command is not None:
            command.listener.answered(result, error)

    def _refusal(self, call: str) -> KafkaError:
        if self.error is not None and self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            return self.error
        return IllegalStateError(f"Cannot {call}: the producer of {self.transactional_id} {self.state.value}")
