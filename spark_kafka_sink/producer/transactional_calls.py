"""The transactional calls of a producer: each waits on its caller's thread for the sender thread's result."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.protocol_values import (
    LARGEST_INT16,
    LARGEST_INT32,
    LARGEST_INT64,
    check_number,
    check_text,
)
from spark_kafka_sink.errors import IllegalStateError, KafkaTimeoutError
from spark_kafka_sink.producer.append.pending import SendBuffers
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.producer.sender.sender_thread import SenderThread
from spark_kafka_sink.producer.transactions.manager import TransactionalCall, TransactionManager
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


@dataclass(eq=False)
class TransactionalCalls:
    """For any thread but the sender's (KIP-98, KIP-890).

    ``KafkaProducer`` describes these methods, and when they raise what.
    """

    config: ProducerConfig
    manager: TransactionManager
    pending: SendBuffers
    sender: Sender
    thread: SenderThread
    clock: Clock

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._incomplete: TransactionalCall | None = None

    def init(self, timeout_ms: float | None = None, *, transactional_id: str | None = None) -> TransactionalIdentity:
        step = Step.INIT if transactional_id is None else Step.INIT_AS
        if transactional_id is not None:
            check_text("transactional_id", transactional_id)
            if not transactional_id:
                raise ValueError("Invalid transactional_id: it is empty.")
        return cast(TransactionalIdentity, self._call(step, timeout_ms, transactional_id=transactional_id))

    def resume(self, identity: TransactionalIdentity) -> None:
        check_number("identity.producer_id", identity.producer_id, 0, LARGEST_INT64)
        check_number("identity.epoch", identity.epoch, 0, LARGEST_INT16)
        self._call(Step.RESUME, None, identity=identity)

    def begin(self) -> None:
        self._call(Step.BEGIN, None)

    def send_offsets(
        self, offsets: Offsets, group: str | ConsumerGroupMetadata, timeout_ms: float | None = None
    ) -> None:
        if not isinstance(group, ConsumerGroupMetadata):
            group = ConsumerGroupMetadata(group)
        checked = {_partition(where): _offset(where, offset) for where, offset in offsets.items()}
        if checked:
            self._call(Step.SEND_OFFSETS, timeout_ms, offsets=checked, group=group)

    def commit(self, timeout_ms: float | None = None) -> None:
        self._call(Step.COMMIT, timeout_ms)

    def abort(self, timeout_ms: float | None = None) -> None:
        self._call(Step.ABORT, timeout_ms)

    def prepare(self, timeout_ms: float | None = None) -> PreparedTransaction:
        return cast(PreparedTransaction, self._call(Step.PREPARE, timeout_ms))

    @property
    def identity(self) -> TransactionalIdentity | None:
        return self.manager.identity

    def _call(self, step: Step, timeout_ms: float | None, **details: Any) -> object:
        self.thread.waiters.check()
        granted = self.config.max_block_ms if timeout_ms is None else timeout_ms
        deadline = self.clock.now() + granted
        if step in _FLUSHING and not self.pending.flush(granted):
            raise KafkaTimeoutError(f"{step.value}: Failed to flush within {granted:.0f} ms; call it again")
        call = self._submit(step, details)
        self.thread.wakeup()
        if not call.outcome.wait(max(0.0, deadline - self.clock.now())):
            again = "; call it again to continue waiting" if step in _RESUMED else ""
            text = f"{step.value} has no response after {granted:.0f} ms{again}"
            lost = self.sender.metadata.last_connection_error()
            raise self.sender.with_obstacle(text, self.clock.now()) from lost
        with self._lock:
            if self._incomplete is call:
                self._incomplete = None
        result = call.outcome.value()
        # The callbacks of a transaction's records run before its end is reported.
        self.thread.callbacks.wait(max(0.0, deadline - self.clock.now()))
        return result

    def _submit(self, step: Step, details: dict[str, Any]) -> TransactionalCall:
        """The call that the sender takes; that of an earlier attempt, which timed out or was interrupted, if it is the
        same. The manager ignores a call that is submitted again."""
        with self._lock:
            before = self._incomplete
            if before is not None:
                if (before.step, before.transactional_id) == (step, details.get("transactional_id")):
                    self.manager.submit(before)
                    return before
                if (before.step, step) != (Step.PREPARE, Step.ABORT):
                    raise IllegalStateError(
                        f"{before.step.value} is not complete yet: call it again before {step.value}"
                    )
            call = TransactionalCall(step, self.thread, **details)
            if step in _RESUMED:
                self._incomplete = call
            self.manager.submit(call)
            return call


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
