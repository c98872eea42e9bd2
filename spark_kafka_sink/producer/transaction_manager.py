"""``TransactionManager``: the state of one transactional producer and its requests (Java: ``TransactionManager``).

``TRANSITIONS`` has all states and steps (Java: ``TransactionManager.State``); a step that it does not have is refused.
Java has no ``PREPARED``: all records are in the log, the transaction is open, and any process that knows its identity
may commit or abort it.

Owned by the sender thread. Any thread may call ``append`` and read ``state``, ``error``, ``identity`` and ``number``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.common.waiting import CallOutcome
from spark_kafka_sink.errors import (
    BrokerError,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    RecordTooLargeError,
    RequestBuildError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnsupportedVersionError,
    own_copy,
    unexpected_error,
)
from spark_kafka_sink.network.api_versions import INIT_PRODUCER_ID_WITH_IDENTITY
from spark_kafka_sink.network.calls import CallEnd, Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.error_table import TRANSACTIONAL_PRODUCE, Action, action
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.producer import transaction_requests as requests
from spark_kafka_sink.producer.accumulator import DrainMode, Flush, RecordAccumulator
from spark_kafka_sink.producer.callbacks import Callbacks
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.producer.sequences import Sequences
from spark_kafka_sink.producer.transaction_requests import (
    END_TXN_V1,
    END_TXN_V2,
    ConsumerGroupMetadata,
    Offsets,
    PreparedTransaction,
    TransactionalIdentity,
    end_txn_version,
)


class State(Enum):
    """The value completes the sentence "The producer …"."""

    UNINITIALIZED = "has no producer id yet: call init_transactions() first"
    INITIALIZING = "is waiting for its producer id"
    READY = "has no transaction open: call begin_transaction() first"
    IN_TRANSACTION = "has a transaction open"
    PREPARING = "is preparing its transaction"
    PREPARED = "has prepared its transaction: commit it, abort it, or leave it open (close(), another transactional_id)"
    COMMITTING = "is committing its transaction"
    ENDING = "is committing its transaction: EndTxn is sent"
    ABORTING = "is aborting its transaction"
    ABORTABLE_ERROR = "has a failed transaction: call abort_transaction()"
    FATAL_ERROR = "has failed for good: close it"


class Step(Enum):
    """A call of the user (the value is its name) or an event."""

    INIT = "init_transactions()"
    INIT_AS = "init_transactions(transactional_id=…)"
    RESUME = "resume_transactions()"
    BEGIN = "begin_transaction()"
    SEND_OFFSETS = "send_offsets_to_transaction()"
    PREPARE = "prepare_transaction()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"
    INITIALIZED = "the coordinator granted a producer id and epoch"
    FLUSHED = "every batch of a transaction being prepared or committed is in the log"
    ENDED = "the coordinator has committed or aborted"
    BUMP = "the next transaction needs a new epoch: lost sequence numbers, a late EndTxn, or another protocol"
    FAIL = "a batch or a request failed: this transaction can only be aborted"
    REFUSED = "the coordinator refused the commit: this transaction can only be aborted"
    UNSENT = "InitProducerId or EndTxn could not be built: the call may be repeated"
    BREAK = "fatal error: fenced, not authorized, not supported"


TRANSITIONS: Final[Mapping[tuple[State, Step], State]] = MappingProxyType({
    (State.UNINITIALIZED, Step.INIT): State.INITIALIZING,
    (State.UNINITIALIZED, Step.INIT_AS): State.INITIALIZING,
    (State.UNINITIALIZED, Step.RESUME): State.READY,
    (State.INITIALIZING, Step.INITIALIZED): State.READY,
    (State.INITIALIZING, Step.UNSENT): State.UNINITIALIZED,
    (State.READY, Step.INIT_AS): State.INITIALIZING,
    (State.READY, Step.BEGIN): State.IN_TRANSACTION,
    (State.READY, Step.BUMP): State.INITIALIZING,
    (State.IN_TRANSACTION, Step.SEND_OFFSETS): State.IN_TRANSACTION,
    (State.IN_TRANSACTION, Step.PREPARE): State.PREPARING,
    (State.IN_TRANSACTION, Step.COMMIT): State.COMMITTING,
    (State.IN_TRANSACTION, Step.ABORT): State.ABORTING,
    (State.IN_TRANSACTION, Step.FAIL): State.ABORTABLE_ERROR,
    (State.PREPARING, Step.FLUSHED): State.PREPARED,
    (State.PREPARING, Step.ABORT): State.ABORTING,
    (State.PREPARING, Step.FAIL): State.ABORTABLE_ERROR,
    (State.PREPARED, Step.COMMIT): State.COMMITTING,
    (State.PREPARED, Step.ABORT): State.ABORTING,
    (State.PREPARED, Step.INIT_AS): State.INITIALIZING,
    (State.COMMITTING, Step.ENDED): State.READY,  # an empty transaction needs no EndTxn
    (State.COMMITTING, Step.FAIL): State.ABORTABLE_ERROR,
    (State.COMMITTING, Step.FLUSHED): State.ENDING,
    (State.ENDING, Step.ENDED): State.READY,
    (State.ENDING, Step.REFUSED): State.ABORTABLE_ERROR,
    (State.ENDING, Step.UNSENT): State.ABORTABLE_ERROR,
    (State.ENDING, Step.FAIL): State.ENDING,  # records appended too late for this transaction
    (State.ABORTING, Step.ENDED): State.READY,
    (State.ABORTING, Step.BUMP): State.INITIALIZING,
    (State.ABORTING, Step.FAIL): State.ABORTING,
    (State.ABORTING, Step.UNSENT): State.ABORTABLE_ERROR,
    (State.ABORTABLE_ERROR, Step.ABORT): State.ABORTING,
    (State.ABORTABLE_ERROR, Step.FAIL): State.ABORTABLE_ERROR,
    **{(state, Step.BREAK): State.FATAL_ERROR for state in State},
})  # fmt: skip

SENDING: Final = frozenset({State.IN_TRANSACTION, State.PREPARING, State.COMMITTING})
"""States that send batches. In every other state batches fail."""

RESUMED: Final = frozenset({Step.INIT, Step.INIT_AS, Step.BEGIN, Step.PREPARE, Step.COMMIT, Step.ABORT})
"""Calls that continue after their timeout. A repeated call waits for the same result."""

FLUSHING: Final = frozenset({State.PREPARING, State.COMMITTING, State.ABORTING})
"""States that wait until no batch is incomplete, and in which no batch lingers."""


_log = logging.getLogger("spark_kafka_sink.sender")


_CANNOT_GO_ON: Final = (
    "The producer of {id} has lost the result of some records, and its coordinator cannot renew its epoch "
    "(InitProducerId before version 3, Kafka 2.5): the transaction is aborted, but it isn't safe to continue. Close "
    "the producer and open another."
)


@dataclass(slots=True, eq=False)
class TransactionalCall:
    """A user's call on its way to the sender thread. ``offsets`` and ``group`` belong to SEND_OFFSETS, ``identity`` to
    RESUME, ``transactional_id`` to INIT_AS.

    ``end``: its result and error. ``again``: whether it repeats a call that has timed out or was interrupted.
    ``is_read``: whether its caller has the result.
    """

    step: Step
    callbacks: Callbacks
    offsets: Offsets = field(default_factory=dict)
    group: ConsumerGroupMetadata | None = None
    identity: TransactionalIdentity | None = None
    transactional_id: str | None = None
    outcome: CallOutcome = field(init=False)
    end: tuple[object, Exception | None] | None = None
    again: list[TransactionalCall] = field(default_factory=list)
    is_read: bool = False

    def __post_init__(self) -> None:
        self.outcome = CallOutcome(self.callbacks.sender)

    def complete(self, result: object, error: Exception | None) -> None:
        """Sets the result, which the caller gets after the callbacks of the transaction's records have run. A second
        call has no effect."""
        if self.end is None:
            self.end = result, error
            self.callbacks.add((lambda _: self.outcome.complete(result, error),), None)
            for call in self.again:
                call.complete(result, error)

    def result(self) -> object:
        """The result for the caller, once the ``outcome`` is set. Raises the error."""
        self.is_read = True
        return self.outcome.value()


class Append:
    """A ``with`` block that puts rows into the transaction with this number. ``error``: why some of its rows are not
    put. ``open_appends`` has the block until it ends, and for good if an interrupt prevents ``__exit__``.
    """

    __slots__ = ("_open_appends", "error", "transaction")

    def __init__(self, transaction: int, open_appends: dict[Append, None]) -> None:
        self.transaction = transaction
        self.error: KafkaError | None = None
        self._open_appends = open_appends
        open_appends[self] = None

    def __enter__(self) -> int:
        return self.transaction

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or is_refused(error):
            self._open_appends.pop(self, None)
        else:
            # A copy without its frames, which would keep the call's rows and their memory.
            self.error = own_copy(error) if isinstance(error, KafkaError) else KafkaError(f"send has raised {error!r}")


def is_refused(error: BaseException) -> bool:
    """Whether a record was refused as invalid. The transaction continues without such a record, as in Java, where only
    an ``ApiException`` fails it (for example for a record that is too large).
    """
    return isinstance(error, InvalidRecordError) and not isinstance(error, RecordTooLargeError)


@dataclass(eq=False, repr=False)
class TransactionManager:
    """The state of a transactional producer. The sender thread takes the calls out of the inbox; it calls
    ``take_losses``, then ``advance``, in each iteration.

    ``number``: the number of the open transaction, or of the last. Rows carry the number that their caller saw.

    Protocol v1 (before KIP-890): the first batch of a partition waits, the partition muted, for AddPartitionsToTxn.
    """

    config: InitVar[ProducerConfig]
    _accumulator: RecordAccumulator
    _sequences: Sequences
    _client: NetworkClient
    _calls: Calls
    state: State = State.UNINITIALIZED
    error: KafkaError | None = None
    number: int = 0
    _appends: dict[Append, None] = field(default_factory=dict)
    _last_call: TransactionalCall | None = None
    _pending: TransactionalCall | None = None
    _sending_offsets: dict[TransactionalCall, None] = field(default_factory=dict)
    _flush: Flush = field(default_factory=Flush)
    _partitions: set[TopicPartition] = field(default_factory=set)
    _new_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    _adding_partitions: bool = False
    _started: bool = False
    _confirmed: bool = False
    _end_unanswered: bool = False
    _epoch_used: bool = False
    _can_bump: bool = True

    def __post_init__(self, config: ProducerConfig) -> None:
        assert config.transactional_id is not None
        self._identity = TransactionalIdentity(config.transactional_id, *NO_IDENTITY, END_TXN_V1)
        self._timeout_ms = config.transaction_timeout_ms

    # Any thread

    @property
    def identity(self) -> TransactionalIdentity | None:
        """The identity of the next transaction; None before the first InitProducerId response."""
        return None if self._identity.identity == NO_IDENTITY else self._identity

    def append(self) -> Append:
        """The block in which rows are put. Raises unless the transaction takes rows now.

        A transaction whose append has not ended is not committed, so an interrupt needs no clean-up. A caller notes its
        append, then reads the state. A commit sets the state, then reads the appends. One of them sees the other.
        """
        append = Append(self.number, self._appends)
        if self.state is not State.IN_TRANSACTION:
            self._appends.pop(append, None)
            raise self._state_error("append records")
        return append

    def is_adding(self, partition: TopicPartition) -> bool:
        """Whether the partition's batches wait until AddPartitionsToTxn has added it to the transaction."""
        return partition in self._new_partitions

    # The sender thread

    @property
    def may_send(self) -> bool:
        return self.state in SENDING

    @property
    def is_ending(self) -> bool:
        """Whether a transaction is being committed or aborted."""
        return self.state in (State.COMMITTING, State.ENDING, State.ABORTING)

    @property
    def transactional_id(self) -> str:
        return self._identity.transactional_id

    @property
    def protocol(self) -> int:
        """1 or 2: the protocol of the open transaction, or of the next."""
        return 2 if self._v2 else 1

    def takes(self, number: int) -> bool:
        """Whether rows of this transaction belong to the open one."""
        return self.state is State.IN_TRANSACTION and number == self.number

    def take(self, call: TransactionalCall) -> None:
        """Takes a user's call. If it repeats the last call, which has timed out, it gets that call's result."""
        before = self._last_call
        if before is not None and not (before.is_read or any(each.is_read for each in before.again)):
            if (before.step, before.transactional_id) == (call.step, call.transactional_id):
                before.again.append(call)
                if before.end is not None:
                    call.complete(*before.end)
                return
            if before.step is not Step.BEGIN and (before.step, call.step) != (Step.PREPARE, Step.ABORT):
                again = f"{before.step.value} is not complete yet: call it again before {call.step.value}"
                call.complete(None, IllegalStateError(again))
                return
        if call.step in RESUMED:
            self._last_call = call
        try:
            self._take(call)
            if self.state in (State.PREPARING, State.COMMITTING):
                self._fail_unless_put()
        except Exception as error:
            _log.exception("%s failed", call.step.value)
            call.complete(None, unexpected_error(error))

    def take_losses(self) -> None:
        """Fails the open transaction if some of its rows could not be put."""
        for append in [*self._appends]:
            if append.error is not None:
                self._appends.pop(append, None)
                if append.transaction == self.number:
                    self.batch_failed(append.error)

    def _fail_unless_put(self) -> None:
        self.take_losses()
        if any(append.transaction == self.number for append in [*self._appends]):
            self.batch_failed(KafkaError("A call that appends rows was interrupted or has not returned yet"))

    def advance(self) -> None:
        """Start the requests that are due."""
        if self.state in SENDING and self._new_partitions and not self._adding_partitions:
            self._add_partitions([*self._new_partitions])
        if self.state in FLUSHING and not (
            self._calls.of(self) or self._accumulator.has_incomplete or self._sequences.any_in_flight
        ):
            self._flushed()

    def sendable(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        """The drained batches whose partitions are in the transaction. The other batches return to their queues."""
        if self._v2:
            self._started = True
            return list(batches)
        sendable = []
        for batch in batches:
            if batch.header is None and batch.partition not in self._partitions:
                self._new_partitions[batch.partition] = None
                self._accumulator.undrain(batch)
            else:
                sendable.append(batch)
        return sendable

    def batch_failed(self, error: Exception) -> None:
        """Marks the batch's transaction, so that it is not committed."""
        fatal = isinstance(error, UnsupportedVersionError) or (
            isinstance(error, BrokerError) and action(TRANSACTIONAL_PRODUCE, error.code) >= Action.FAIL
        )
        if fatal and isinstance(error, KafkaError):
            self._break(error)
        elif (self.state, Step.FAIL) in TRANSITIONS:
            self._fail(error)

    def rejection(self) -> KafkaError:
        """The error of batches that this state does not send."""
        if self.state is State.ABORTABLE_ERROR:
            return TransactionAbortedError(f"Not sent, because the transaction has failed: {self.error}")
        if self.state is State.ABORTING:
            return TransactionAbortedError("Not sent, because the transaction was aborted")
        if self.state is State.IN_TRANSACTION:
            return TransactionAbortedError("Not sent, because the transaction that the record was for has ended")
        return self._state_error("append records")

    def close(self) -> None:
        """Aborts an open transaction; a prepared one stays open."""
        if self.state in (State.IN_TRANSACTION, State.PREPARING, State.ABORTABLE_ERROR):
            _log.info("Aborting the open transaction of %s: the producer is closed", self.transactional_id)
            self._abort(None)

    def end(self, error: Exception) -> None:
        """Fails the calls that wait, because the sender thread ends."""
        self._fail_requests(error)

    # Calls

    def _take(self, call: TransactionalCall) -> None:
        if (self.state, call.step) not in TRANSITIONS:
            call.complete(None, self._state_error(call.step.value))
            return
        match call.step:
            case Step.INIT:
                self._begin_step(call)
                self._init()
            case Step.INIT_AS:
                assert call.transactional_id is not None
                self._begin_step(call)
                self._identity = TransactionalIdentity(
                    call.transactional_id, *NO_IDENTITY, self._identity.end_txn_version
                )
                self._init()
            case Step.RESUME:
                assert call.identity is not None
                self._identity = replace(self._identity, end_txn_version=call.identity.end_txn_version)
                self._restart(call.identity.identity)
                # In an epoch of v1 other processes may have written, whose sequences and EndTxn are not known here.
                self._end_unanswered = not self._v2
                self._begin_step(call)
                self._complete(call.identity, None)
            case Step.BEGIN:
                self._begin(call)
            case Step.SEND_OFFSETS:
                self._send_offsets(call)
            case Step.ABORT:
                self._abort(call)
            case _:
                self._begin_step(call)

    def _begin_step(self, call: TransactionalCall) -> None:
        self._pending = call
        self._move(call.step)

    def _begin(self, call: TransactionalCall) -> None:
        self._started = self._confirmed = False
        node = self._calls.located(requests.transaction_key(self.transactional_id))
        if node is not None:
            self._choose_protocol(node.id)
        # An EndTxn that arrives late would end the next transaction of the same epoch (KAFKA-17754). Nor may protocol
        # v2 go on in an epoch of v1: while the markers of its last transaction are written, records of the next one
        # would join that end (KAFKA-18227).
        if self._can_bump and (self._end_unanswered or (self._v2 and self._epoch_used)):
            self._pending = call
            self._move(Step.BUMP)
            self._init()
            return
        self._appends.clear()
        self.number += 1
        self._begin_step(call)
        self._complete(None, None)

    def _send_offsets(self, call: TransactionalCall) -> None:
        group = call.group
        assert group is not None

        def committed(end: CallEnd) -> None:
            del self._sending_offsets[call]
            self._handle_error(end)
            call.complete(None, None if end.error is None else self.error)

        def added(end: CallEnd) -> None:
            if end.error is None:
                self._confirmed = True
                commit()
            else:
                committed(end)

        def commit() -> None:
            self._calls.start(requests.txn_offset_commit(self._identity, call.offsets, group, committed), self)

        self._started = True
        self._sending_offsets[call] = None
        if self._v2:
            commit()
        else:
            self._calls.start(requests.add_offsets(self._identity, group, added), self)

    def _abort(self, call: TransactionalCall | None) -> None:
        self._fail_requests(TransactionAbortedError("The transaction is being aborted"))
        self._pending = call
        self._move(Step.ABORT)

    # Requests and their responses

    def _init(self) -> None:
        self._calls.start(requests.init_producer_id(self._identity, self._timeout_ms, self._initialized), self)

    def _initialized(self, end: CallEnd) -> None:
        if isinstance(end.error, RequestBuildError):
            self._move(Step.UNSENT)
            self._complete(None, end.error)
            return
        call = self._pending
        if isinstance(end.error, UnsupportedVersionError) and call is not None and call.step is Step.BEGIN:
            self._can_bump = False  # Kafka before 2.5, not known yet when the identity was resumed
            self._move(Step.INITIALIZED)
            self._begin(call)
            return
        if end.error is not None:
            self._break(end.error)
            return
        self._choose_protocol(end.node_id)
        self._restart(ProducerIdentity(int(end.body.producer_id), int(end.body.producer_epoch)))
        self._move(Step.INITIALIZED)
        if call is not None and call.step is Step.BEGIN:
            self._begin(call)
        else:
            self._complete(self.identity, None)

    def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        def added(end: CallEnd) -> None:
            self._handle_error(end)
            if end.error is None:
                self._confirmed = True
                self._adding_partitions = False
                for partition in partitions:
                    del self._new_partitions[partition]
                    self._partitions.add(partition)
                    self._accumulator.set_drain_mode(partition, DrainMode.OPEN)

        self._adding_partitions = self._started = True
        self._calls.start(requests.add_partitions(self._identity, partitions, added), self)

    def _flushed(self) -> None:
        """No batch is incomplete and no request pending: PREPARING, COMMITTING or ABORTING can end."""
        if self.state is State.PREPARING:
            self._move(Step.FLUSHED)
            identity = self._identity
            known = (self.transactional_id, *identity.identity, identity.end_txn_version)
            self._complete(PreparedTransaction(*known, is_empty=not self._started), None)
        elif not self._started:
            self._ended(self._identity.identity)
        else:
            commit = self.state is State.COMMITTING
            if commit:
                self._move(Step.FLUSHED)
            self._calls.start(requests.end_txn(self._identity, commit, self._end_txn_completed), self)

    def _end_txn_completed(self, end: CallEnd) -> None:
        self._end_unanswered |= end.unanswered
        if end.error is None:
            self._ended(requests.identity_after(end.body, self._identity.identity))
        elif end.code is ErrorCode.invalid_txn_state and self.state is State.ABORTING and not self._confirmed:
            # The coordinator does not know this transaction: no AddPartitionsToTxn or its response was lost.
            self._ended(self._identity.identity)
        elif isinstance(end.error, RequestBuildError):
            self.error = None  # of a transaction that was being aborted for it
            self._fail(end.error, Step.UNSENT)
        else:
            self._handle_error(end)

    def _ended(self, identity: ProducerIdentity) -> None:
        lost_sequences = bool(self._sequences.to_resolve())
        if identity != self._identity.identity:
            self._restart(identity)
        elif self.state is State.ABORTING and lost_sequences and not self._can_bump:
            self._break(UnsupportedVersionError(_CANNOT_GO_ON.format(id=self.transactional_id)))
            return
        elif self.state is State.ABORTING and lost_sequences:
            self._move(Step.BUMP)
            self._init()
            return
        else:
            self._epoch_used = self._epoch_used or self._started
        self._unmute()
        self._move(Step.ENDED)
        self._complete(None, None)

    def _handle_error(self, end: CallEnd) -> None:
        if end.error is None:
            return
        step = Step.REFUSED if self.state is State.ENDING else Step.FAIL
        if end.action is Action.ABORT and (self.state, step) in TRANSITIONS and self.state is not State.ABORTING:
            self._fail(end.error, step)
        else:
            self._break(end.error)

    # State

    @property
    def _v2(self) -> bool:
        """Transaction protocol v2 (KIP-890)."""
        return self._identity.end_txn_version >= END_TXN_V2

    def _choose_protocol(self, node_id: int) -> None:
        """Chooses the transaction protocol by the coordinator's ApiVersions, which also say whether it can renew an
        epoch (Java: ``coordinatorSupportsBumpingEpoch``); unchanged without a connection to it.
        """
        versions = self._client.api_versions(node_id)
        if versions is not None:
            self._identity = replace(self._identity, end_txn_version=end_txn_version(versions.features))
            self._can_bump = versions.speaks(API_KEYS["init_producer_id"], INIT_PRODUCER_ID_WITH_IDENTITY)

    def _restart(self, identity: ProducerIdentity) -> None:
        """A new producer id or epoch: every sequence starts at 0, and no EndTxn of another epoch has an effect."""
        self._end_unanswered = self._epoch_used = False
        self._unmute()
        self._sequences.restart(identity)
        self._identity = replace(self._identity, producer_id=identity.producer_id, epoch=identity.epoch)
        _log.debug("%s", self.identity)

    def _unmute(self) -> None:
        """Opens the partitions again that the transaction muted, because it has ended."""
        for partition in (*self._new_partitions, *self._sequences.to_resolve()):
            self._accumulator.set_drain_mode(partition, DrainMode.OPEN)
        self._new_partitions.clear()
        self._partitions.clear()

    def _fail(self, error: Exception, step: Step = Step.FAIL) -> None:
        self._move(step)
        if self.state is not State.ABORTABLE_ERROR:
            return
        if self.error is None:
            self.error = TransactionAbortableError(f"The transaction has failed, abort it: {error}")
            self.error.__cause__ = error
            self.error.row = getattr(error, "row", None)
        self._complete(None, self.error)

    def _break(self, error: KafkaError) -> None:
        self._move(Step.BREAK)
        self.error = error
        self._fail_requests(error)

    def _fail_requests(self, error: Exception) -> None:
        """Drop every pending request; the calls that wait for them fail."""
        self._calls.stop(self)
        self._adding_partitions = False
        self._complete(None, error)
        while self._sending_offsets:
            self._sending_offsets.popitem()[0].complete(None, error)

    def _move(self, step: Step) -> None:
        flushed = self.state in FLUSHING
        self.state = TRANSITIONS[self.state, step]
        if step in (Step.ENDED, Step.INITIALIZED):
            self.error = None
        flushes = self.state in FLUSHING
        if flushes and not flushed:
            self._flush = Flush()
            self._accumulator.begin_flush(self._flush)
        elif flushed and not flushes:
            self._flush.over = True

    def _complete(self, result: Any, error: Exception | None) -> None:
        call, self._pending = self._pending, None
        if call is not None:
            call.complete(result, error)

    def _state_error(self, call: str) -> KafkaError:
        if self.error is not None and self.state in (State.ABORTABLE_ERROR, State.FATAL_ERROR):
            return self.error
        return IllegalStateError(f"Cannot {call}: the producer of {self.transactional_id} {self.state.value}")
