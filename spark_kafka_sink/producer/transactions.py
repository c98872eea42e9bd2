"""The transactional calls of ``KafkaProducer``, on the caller's thread: each waits for the sender thread's answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import IllegalStateError, KafkaTimeoutError
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.sender.sender_thread import SenderThread
from spark_kafka_sink.transactions.commands import Command
from spark_kafka_sink.transactions.manager import TransactionManager
from spark_kafka_sink.transactions.states import Step
from spark_kafka_sink.transactions.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TransactionalIdentity,
)

_RESUMED = frozenset({Step.INIT, Step.INIT_AS, Step.PREPARE, Step.COMMIT, Step.ABORT})
"""Calls that go on after their time is up: called again they wait for the same answer."""

_ENDS = frozenset({Step.PREPARE, Step.COMMIT, Step.ABORT})
"""Calls that are about every record sent before."""

_ABORT_MS = 5_000.0

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]


class TransactionalProducer:
    """The transactional half of ``KafkaProducer``, for which ``transactional.id`` must be given (KIP-98, KIP-890).

    ``timeout_ms`` None is max.block.ms. Every call raises ``IllegalStateError`` when the state does not allow it,
    ``TransactionAbortableError`` when the open transaction has failed, ``ProducerFencedError`` or another error of the
    broker's when the producer has failed for good, and ``KafkaTimeoutError`` when its time is up; the same call again
    then goes on waiting.
    """

    _transactions: ProducerTransactions | None

    def init_transactions(
        self, timeout_ms: float | None = None, *, transactional_id: str | None = None
    ) -> TransactionalIdentity:
        """Fence whoever else has this transactional id, abort what they left open, get producer id and epoch.

        With a ``transactional_id`` the producer goes on under that one: before its first transaction, between two, or
        after ``prepare_transaction``, which leaves the prepared one open under the id that it has. One producer with
        its connections can so serve one task after the other. The same id again is fenced like any other.
        """
        return self._transactional().init(timeout_ms, transactional_id)

    def adopt(self, fence: TransactionalIdentity) -> None:
        """Instead of ``init_transactions``: write on under a fence taken elsewhere, by another process perhaps.

        Nothing is asked of the broker: it tells with the first transaction whether the fence still stands. A fence may
        be adopted once, by a producer whose transactional.id it names.
        """
        self._transactional().adopt(fence)

    def begin_transaction(self) -> None:
        """From here on records may be sent, until the transaction is prepared, committed or aborted."""
        self._transactional().begin()

    def send_offsets_to_transaction(
        self, offsets: Offsets, group: str | ConsumerGroupMetadata, timeout_ms: float | None = None
    ) -> None:
        """Commit a consumer's offsets with the transaction.

        ``offsets``: (topic, partition) → offset of the next record to read, or ``OffsetAndMetadata``. ``group``: the
        group's id, or with the member's ``ConsumerGroupMetadata`` also a fence against zombies of it (KIP-447).
        """
        self._transactional().send_offsets(offsets, group, timeout_ms)

    def commit_transaction(self, timeout_ms: float | None = None) -> None:
        """Send what is left, wait for every batch, commit."""
        self._transactional().commit(timeout_ms)

    def abort_transaction(self, timeout_ms: float | None = None) -> None:
        """Drop what is not sent yet (its futures fail with ``TransactionAbortedError``), wait for the rest, abort."""
        self._transactional().abort(timeout_ms)

    def prepare_transaction(self, timeout_ms: float | None = None) -> PreparedTransaction:
        """Send what is left, wait for every batch, leave the transaction open for whoever ends it.

        Afterwards this producer may end it itself, or leave it open: by ``close``, or by ``init_transactions`` with
        another ``transactional_id``.
        """
        return self._transactional().prepare(timeout_ms)

    @property
    def fence(self) -> TransactionalIdentity | None:
        """Under what the next transaction is written: with protocol v2 each end gives another epoch."""
        return self._transactional().manager.fence

    @property
    def _abort_ms(self) -> float:
        """How long a ``with`` block that ends by an error waits to abort the open transaction."""
        return 0.0 if self._transactions is None else _ABORT_MS

    def _check_may_append(self) -> None:
        self._check_open()
        if self._transactions is not None:
            self._transactions.manager.check_in_transaction()

    def _records_lost(self, error: Exception) -> None:
        if self._transactions is not None:
            self._transactions.manager.records_lost(error)

    def _transactional(self) -> ProducerTransactions:
        self._check_open()
        if self._transactions is None:
            raise IllegalStateError("Transactions need transactional.id in the producer's configuration")
        return self._transactions

    def _check_open(self) -> None:
        raise NotImplementedError


class Answer:
    """Implements ``CommandListener``: one answer, brought by the sender thread, read by the caller."""

    def __init__(self, step: Step, transactional_id: str | None = None) -> None:
        self.step = step
        self.transactional_id = transactional_id
        self._done = threading.Event()
        self._result: object = None
        self._error: Exception | None = None

    def asks_the_same(self, other: Answer) -> bool:
        return (self.step, self.transactional_id) == (other.step, other.transactional_id)

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def answered(self, result: object, error: Exception | None) -> None:
        self._result, self._error = result, error
        self._done.set()

    def wait(self, timeout_ms: float, granted_ms: float | None = None) -> object:
        """``granted_ms``: the whole call's time, where ``timeout_ms`` is what is left of it."""
        if not self._done.wait(min(timeout_ms, threading.TIMEOUT_MAX) / 1000.0):
            again = "; call it again to go on waiting" if self.step in _RESUMED else ""
            granted_ms = timeout_ms if granted_ms is None else granted_ms
            raise KafkaTimeoutError(f"{self.step.value} has no answer after {granted_ms:.0f} ms{again}")
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._result


class ProducerTransactions:
    """Turns calls into commands for the sender thread."""

    def __init__(
        self,
        manager: TransactionManager,
        sender_thread: SenderThread,
        flush_staged: Callable[[float], bool],
        max_block: float,
        clock: Clock,
    ) -> None:
        self.manager = manager
        self._sender_thread = sender_thread
        self._flush_staged = flush_staged
        self._max_block_ms = max_block
        self._clock = clock
        self._lock = threading.Lock()
        self._unanswered: Answer | None = None

    def init(self, timeout_ms: float | None, transactional_id: str | None) -> TransactionalIdentity:
        step = Step.INIT if transactional_id is None else Step.INIT_AS
        fence: Any = self._call(step, timeout_ms, transactional_id=transactional_id)
        return fence if isinstance(fence, TransactionalIdentity) else self._present_fence()

    def adopt(self, fence: TransactionalIdentity) -> None:
        self._call(Step.ADOPT, None, fence=fence)

    def begin(self) -> None:
        self._call(Step.BEGIN, None)

    def send_offsets(self, offsets: Offsets, group: str | ConsumerGroupMetadata, timeout_ms: float | None) -> None:
        if not isinstance(group, ConsumerGroupMetadata):
            group = ConsumerGroupMetadata(group)
        checked = {TopicPartition(*where): _checked(offset) for where, offset in offsets.items()}
        if checked:
            self._call(Step.SEND_OFFSETS, timeout_ms, offsets=checked, group=group)

    def prepare(self, timeout_ms: float | None) -> PreparedTransaction:
        prepared: Any = self._call(Step.PREPARE, timeout_ms)
        assert isinstance(prepared, PreparedTransaction)
        return prepared

    def commit(self, timeout_ms: float | None) -> None:
        self._call(Step.COMMIT, timeout_ms)

    def abort(self, timeout_ms: float | None) -> None:
        self._call(Step.ABORT, timeout_ms)

    def _call(self, step: Step, timeout_ms: float | None, **details: Any) -> object:
        if self._sender_thread.is_current:
            raise IllegalStateError(f"{step.value} in a callback would wait for itself")
        granted = self._max_block_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.now() + granted
        if step in _ENDS and not self._flush_staged(granted):
            raise KafkaTimeoutError(f"{step.value}: Failed to flush within {granted:.0f} ms; call it again")
        answer = self._submit(step, details)
        self._sender_thread.wakeup()
        try:
            result = answer.wait(max(0.0, deadline - self._clock.now()), granted)
        except KafkaTimeoutError:
            raise
        except Exception:
            self._forget(answer)
            raise
        self._forget(answer)
        # The callbacks of a transaction have run when its end is told, as when the sender thread alone ran both.
        self._sender_thread.callbacks.wait(max(0.0, deadline - self._clock.now()))
        return result

    def _submit(self, step: Step, details: dict[str, Any]) -> Answer:
        with self._lock:
            unanswered = self._unanswered
            answer = Answer(step, details.get("transactional_id"))
            if unanswered is not None and unanswered.asks_the_same(answer):
                return unanswered
            if unanswered is not None and (unanswered.step, step) != (Step.PREPARE, Step.ABORT):
                raise IllegalStateError(
                    f"{unanswered.step.value} has not been answered yet: call it again before {step.value}"
                )
            if step in _RESUMED:
                self._unanswered = answer
            self.manager.submit(Command(step, answer, **details))
            return answer

    def _forget(self, answer: Answer) -> None:
        with self._lock:
            if self._unanswered is answer:
                self._unanswered = None

    def _present_fence(self) -> TransactionalIdentity:
        fence = self.manager.fence
        assert fence is not None
        return fence


def _checked(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    value = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if value.offset < 0:
        raise ValueError(f"Invalid negative offset: {value.offset}")
    return value
