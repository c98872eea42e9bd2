"""The transactional calls of ``ProducerEngine``: each waits on its caller's thread for the sender thread's result."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, cast

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.protocol_values import (
    LARGEST_INT16,
    LARGEST_INT32,
    LARGEST_INT64,
    check_number,
    check_text,
)
from spark_kafka_sink.common.waiting import SendingThread, Waiters
from spark_kafka_sink.errors import IllegalStateError, KafkaTimeoutError
from spark_kafka_sink.producer.assembly import ProducerComponents
from spark_kafka_sink.producer.transactions.manager import Command, TransactionManager
from spark_kafka_sink.producer.transactions.states import Step
from spark_kafka_sink.producer.transactions.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TransactionalIdentity,
)

_RESUMED = frozenset({Step.INIT, Step.INIT_AS, Step.PREPARE, Step.COMMIT, Step.ABORT})
"""Calls that go on after their timeout: called again they wait for the same result."""

_FLUSHING = frozenset({Step.PREPARE, Step.COMMIT, Step.ABORT})
"""Calls that concern every record sent before."""

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]


class TransactionalRequestResult:
    """``CommandListener``: the sender thread sets the result, the caller waits (Java's class of this name)."""

    def __init__(self, step: Step, transactional_id: str | None = None, sender: SendingThread | None = None) -> None:
        self.step = step
        self.transactional_id = transactional_id
        self._lock = threading.Lock()
        self._changed = Waiters(sender)
        self._done = self._submitted = False
        self._result: object = None
        self._error: Exception | None = None
        self.command: Command | None = None

    def submit(self, manager: TransactionManager) -> None:
        """Unless an earlier call has. The manager ignores the second of two calls after an interrupt."""
        if self.command is not None and not self._submitted:
            manager.submit(self.command)
            self._submitted = True

    def is_of(self, step: Step, transactional_id: str | None) -> bool:
        return (self.step, self.transactional_id) == (step, transactional_id)

    @property
    def done(self) -> bool:
        return self._done

    def complete(self, result: object, error: Exception | None) -> None:
        with self._lock:
            if not self._done:
                self._result, self._error, self._done = result, error, True
            self._changed.notify_all()

    def wait(self, timeout_ms: float, granted_ms: float | None = None) -> object:
        """``granted_ms``: the time of the whole call, of which ``timeout_ms`` are left."""
        if not self._changed.wait_for(self._lock, lambda: self._done, timeout_ms):
            again = "; call it again to continue waiting" if self.step in _RESUMED else ""
            granted_ms = timeout_ms if granted_ms is None else granted_ms
            raise KafkaTimeoutError(f"{self.step.value} has no response after {granted_ms:.0f} ms{again}")
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._result


class TransactionalCalls:
    """The transactional half of ``ProducerEngine``; needs ``transactional.id`` (KIP-98, KIP-890).

    ``KafkaProducer`` describes its methods, and when they raise what.
    """

    config: ProducerConfig
    parts: ProducerComponents

    def __init__(self) -> None:
        self._transaction_lock = threading.Lock()
        self._incomplete: TransactionalRequestResult | None = None

    def init_transactions(
        self, timeout_ms: float | None = None, *, transactional_id: str | None = None
    ) -> TransactionalIdentity:
        step = Step.INIT if transactional_id is None else Step.INIT_AS
        if transactional_id is not None:
            check_text("transactional_id", transactional_id)
            if not transactional_id:
                raise ValueError("Invalid transactional_id: it is empty.")
        return cast(TransactionalIdentity, self._call(step, timeout_ms, transactional_id=transactional_id))

    def resume_transactions(self, identity: TransactionalIdentity) -> None:
        check_number("identity.producer_id", identity.producer_id, 0, LARGEST_INT64)
        check_number("identity.epoch", identity.epoch, 0, LARGEST_INT16)
        self._call(Step.RESUME, None, identity=identity)

    def begin_transaction(self) -> None:
        self._call(Step.BEGIN, None)

    def send_offsets_to_transaction(
        self, offsets: Offsets, group: str | ConsumerGroupMetadata, timeout_ms: float | None = None
    ) -> None:
        self._manager()
        if not isinstance(group, ConsumerGroupMetadata):
            group = ConsumerGroupMetadata(group)
        checked = {_partition(where): _offset(where, offset) for where, offset in offsets.items()}
        if checked:
            self._call(Step.SEND_OFFSETS, timeout_ms, offsets=checked, group=group)

    def commit_transaction(self, timeout_ms: float | None = None) -> None:
        self._call(Step.COMMIT, timeout_ms)

    def abort_transaction(self, timeout_ms: float | None = None) -> None:
        self._call(Step.ABORT, timeout_ms)

    def prepare_transaction(self, timeout_ms: float | None = None) -> PreparedTransaction:
        return cast(PreparedTransaction, self._call(Step.PREPARE, timeout_ms))

    @property
    def transactional_identity(self) -> TransactionalIdentity | None:
        return self._manager().identity

    def _manager(self) -> TransactionManager:
        self.check_open()
        manager = self.parts.transaction_manager
        if manager is None:
            raise IllegalStateError("Transactions need transactional.id in the producer's configuration")
        return manager

    def _call(self, step: Step, timeout_ms: float | None, **details: Any) -> object:
        manager, thread, clock = self._manager(), self.parts.sender_thread, self.parts.clock
        thread.waiters.check()
        granted = self.config.max_block_ms if timeout_ms is None else timeout_ms
        deadline = clock.now() + granted
        if step in _FLUSHING and not self.parts.pending.flush(granted):
            raise KafkaTimeoutError(f"{step.value}: Failed to flush within {granted:.0f} ms; call it again")
        pending = self._submit(manager, step, details)
        thread.wakeup()
        try:
            result = pending.wait(max(0.0, deadline - clock.now()), granted)
        except KafkaTimeoutError as timeout:
            lost = self.parts.metadata.last_connection_error()
            raise self.parts.sender.with_obstacle(str(timeout), clock.now()) from lost
        except Exception:
            self._forget(pending)
            raise
        self._forget(pending)
        # The callbacks of a transaction's records run before its end is reported.
        thread.callbacks.wait(max(0.0, deadline - clock.now()))
        return result

    def _submit(self, manager: TransactionManager, step: Step, details: dict[str, Any]) -> TransactionalRequestResult:
        with self._transaction_lock:
            before, transactional_id = self._incomplete, details.get("transactional_id")
            if before is not None and before.is_of(step, transactional_id):
                before.submit(manager)
                return before
            if before is not None and (before.step, step) != (Step.PREPARE, Step.ABORT):
                raise IllegalStateError(f"{before.step.value} is not complete yet: call it again before {step.value}")
            result = TransactionalRequestResult(step, transactional_id, self.parts.sender_thread)
            result.command = Command(step, result, **details)
            if step in _RESUMED:
                self._incomplete = result
            result.submit(manager)
            return result

    def _forget(self, result: TransactionalRequestResult) -> None:
        with self._transaction_lock:
            if self._incomplete is result:
                self._incomplete = None

    def check_open(self) -> None:
        raise NotImplementedError


def _partition(where: tuple[str, int]) -> TopicPartition:
    partition = TopicPartition(*where)
    check_text("topic in offsets", partition.topic)
    check_number(f"partition of {partition.topic} in offsets", partition.partition, 0, LARGEST_INT32)
    return partition


def _offset(where: object, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    if isinstance(given, OffsetAndMetadata):
        return given
    try:
        return OffsetAndMetadata(given)
    except ValueError as error:
        raise ValueError(f"offsets of {where}: {error}") from None
