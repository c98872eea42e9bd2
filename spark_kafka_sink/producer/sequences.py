"""``Sequences``: sequence numbers and outstanding batches per partition (Java: ``TxnPartitionMap``,
``TxnPartitionEntry``; KIP-98, KIP-360). Owned by the sender thread; no I/O, clock or lock.

*Outstanding* batches are stamped and not completed: in flight or waiting for a retry. ``resolve`` handles the flags
below once the partition has nothing in flight:

- ``retry_pending``: all outstanding batches return to the queue together, in sequence order;
- ``unresolved``: a stamped batch failed, so the broker may lack its sequence. Outstanding batches go first; new batches
  wait and get a new epoch, unless a later success shows that no sequence is missing;
- ``resending``: batches are sent again, and no new batch until none of them is in flight. The broker may have a batch
  whose response was lost; it knows a duplicate only among its last five batches, and new ones would push it out;
- ``start_again``: the broker has deleted all records of this producer, and refuses a first batch whose sequence is not
  0 (before Kafka 2.5). The outstanding batches start at 0 in the same epoch, in a transaction only;
- ``bump_epoch``: the broker lacks a sequence before the first outstanding batch. All of them get a new epoch.

A broker accepts any first sequence of a producer that it does not know. A partition's first batch is therefore sent
alone: otherwise the broker could reject it and accept the second one, and the first would end up behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.producer.producer_batch import ProducerBatch
from spark_kafka_sink.records.batch import NO_SEQUENCE, TRANSACTIONAL

MAX_EPOCH = 32767 - 1  # the broker keeps the last one for fencing
_SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences wrap from 2³¹ - 1 to 0 (Java: ``DefaultRecordBatch.incrementSequence``)."""


@dataclass(slots=True)
class PartitionSequence:
    """``acked_until``: the sequence after the last acknowledged record. ``acked_offset``: the offset of that record, -1
    if it is not known. ``known``: a broker knows this producer id.
    """

    identity: ProducerIdentity
    next: int = 0
    acked_until: int = 0
    acked_offset: int = -1
    in_flight: int = 0
    outstanding: list[ProducerBatch] = field(default_factory=list)
    known: bool = False
    sent_alone: bool = False
    retry_pending: bool = False
    resending: bool = False
    unresolved: bool = False
    bump_epoch: bool = False
    start_again: bool = False

    @property
    def resolved(self) -> bool:
        return not (
            self.sent_alone
            or self.retry_pending
            or self.resending
            or self.unresolved
            or self.bump_epoch
            or self.start_again
        )

    @property
    def takes_new(self) -> bool:
        """Whether batches that were never sent may be sent."""
        return not (self.resending or self.unresolved)


class Sequences:
    """All partitions of one producer. Without idempotence every batch gets (-1, -1, -1), and retries still keep the
    order.

    With transactions only the coordinator gives epochs: unresolved partitions stay so until ``restart``.
    ``one_in_flight``: a partition waits for the end of each of its batches, not only if the order depends on it.
    """

    def __init__(self, idempotent: bool, transactional: bool = False, one_in_flight: bool = False) -> None:
        self.idempotent = idempotent
        self.transactional = transactional
        self.one_in_flight = one_in_flight
        self._flags = TRANSACTIONAL if transactional else 0
        self.identity = NO_IDENTITY
        self._partitions: dict[TopicPartition, PartitionSequence] = {}

    @property
    def needs_identity(self) -> bool:
        return self.idempotent and self.identity is NO_IDENTITY

    @property
    def epochs_exhausted(self) -> bool:
        """Whether a partition waits for a new producer id."""
        return self.needs_identity and any(state.bump_epoch or state.unresolved for state in self._partitions.values())

    @property
    def any_in_flight(self) -> bool:
        return any(state.in_flight for state in self._partitions.values())

    def restart(self, identity: ProducerIdentity) -> None:
        """Start every sequence at 0 under ``identity``. No batch may be outstanding."""
        same = identity.producer_id == self.identity.producer_id
        self.identity = identity
        self._partitions = {
            partition: PartitionSequence(identity, known=True)
            for partition, state in self._partitions.items()
            if same and state.known
        }

    def partition(self, partition: TopicPartition) -> PartitionSequence:
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = PartitionSequence(self.identity)
        return state

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether no outstanding batch of the partition precedes it."""
        outstanding = self.partition(batch.partition).outstanding
        return bool(outstanding) and outstanding[0] is batch

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Whether a later batch of the partition is in the log: the broker did not know the producer, rejected this
        batch and accepted the next.
        """
        state = self.partition(batch.partition)
        behind = (state.acked_until - batch.base_sequence) & _SEQUENCE_MASK
        return self.idempotent and batch.identity == state.identity and 0 < behind <= _SEQUENCE_MASK // 2

    def send(self, batch: ProducerBatch) -> bool:
        """Count a batch as in flight and stamp it if it is new; returns whether the partition must wait for its end."""
        state = self.partition(batch.partition)
        if batch.header is None:
            self._stamp(batch, state)
            state.outstanding.append(batch)
        batch.attempts += 1
        state.in_flight += 1
        state.sent_alone = self.idempotent and not state.known
        return state.sent_alone or self.one_in_flight

    def remove_in_flight(self, batch: ProducerBatch) -> PartitionSequence:
        """Notes that the batch's request has ended. Returns the state of its partition."""
        state = self._partitions[batch.partition]
        state.in_flight -= 1
        return state

    def in_order(self, batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
        """The same batches: the outstanding ones first, those of each partition in the order of their sequences."""
        left = dict.fromkeys(batches)
        outstanding = [batch for state in self._partitions.values() for batch in state.outstanding if batch in left]
        return list(dict.fromkeys(outstanding) | left)

    def complete(self, batch: ProducerBatch, base_offset: int = -1) -> None:
        """Notes that the batch is in the log."""
        state = self._partitions[batch.partition]
        state.outstanding.remove(batch)
        if batch.identity == state.identity:
            state.known = True
            state.acked_until = (batch.base_sequence + batch.count) & _SEQUENCE_MASK
            if base_offset >= 0:
                state.acked_offset = base_offset + batch.count - 1

    def start_again(self, batch: ProducerBatch) -> None:
        """Notes that the log has no record of this producer any longer (Java: ``startSequencesAtBeginning``)."""
        state = self.partition(batch.partition)
        state.start_again = state.retry_pending = True

    def forget_producer(self, batch: ProducerBatch) -> None:
        """Notes that the partition does not exist. If it is created again, it does not know the producer id."""
        self.partition(batch.partition).known = False

    def fail(self, batch: ProducerBatch) -> None:
        """Notes that the batch failed or expired. Its records may be in the log."""
        state = self.partition(batch.partition)
        if batch in state.outstanding:  # not after an unexpected exception in ``complete``
            state.outstanding.remove(batch)
        state.unresolved = self.idempotent

    def retry(self, batch: ProducerBatch, bump_epoch: bool) -> None:
        """Notes that the batch is to be sent again. ``bump_epoch``: the broker rejected its sequence or epoch."""
        state = self.partition(batch.partition)
        state.retry_pending = True
        if bump_epoch and state.outstanding[0] is batch:
            state.bump_epoch = self.idempotent

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Put the parts of a split batch in its place among the outstanding ones; they get its sequences."""
        state = self.partition(batch.partition)
        index = state.outstanding.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.stamp(batch.identity, sequence, self._flags)
            if self.idempotent:
                sequence = (sequence + part.count) & _SEQUENCE_MASK
        state.outstanding[index : index + 1] = parts

    def resolve(self, partition: TopicPartition) -> list[ProducerBatch]:
        """Clears the flags and returns the batches to reenqueue, if nothing is in flight (Java:
        ``maybeResolveSequences``).

        When the epochs are exhausted, the flags stay until there is a new producer id.
        """
        state = self.partition(partition)
        state.sent_alone = False
        lost = state.bump_epoch or (state.unresolved and not state.outstanding and state.acked_until != state.next)
        if lost and not self._bump_epoch(state):
            return []
        if state.start_again:
            state.next = state.acked_until = 0
            state.known = False
        if state.bump_epoch or state.start_again:
            for batch in state.outstanding:
                self._stamp(batch, state)
        retries = state.outstanding if state.retry_pending else []
        state.retry_pending = False
        state.resending = self.idempotent and bool(retries)
        state.unresolved = state.unresolved and not lost and bool(state.outstanding)
        state.bump_epoch = state.start_again = False
        return list(retries)

    def to_resolve(self) -> list[TopicPartition]:
        """Unresolved partitions with nothing in flight: a new producer id may resolve them."""
        return [partition for partition, state in self._partitions.items() if not (state.resolved or state.in_flight)]

    def _stamp(self, batch: ProducerBatch, state: PartitionSequence) -> None:
        sequence = NO_SEQUENCE
        if self.idempotent:
            sequence = state.next
            state.next = (sequence + batch.count) & _SEQUENCE_MASK
        batch.stamp(state.identity, sequence, self._flags)

    def _bump_epoch(self, state: PartitionSequence) -> bool:
        """A new epoch for this partition alone: brokers check (id, epoch, sequence) per partition (KIP-360)."""
        if self.transactional:
            return False
        if state.identity == self.identity:
            if self.identity.epoch >= MAX_EPOCH:
                self.identity = NO_IDENTITY
            else:
                self.identity = self.identity._replace(epoch=self.identity.epoch + 1)
        if self.identity is NO_IDENTITY:
            return False
        state.known = state.known and state.identity.producer_id == self.identity.producer_id
        state.identity = self.identity
        state.next = state.acked_until = 0
        return True
