"""Sequence numbers, and what each partition has outstanding (KIP-98, KIP-360). Pure: no I/O, no clock, no lock.

Owned by the sender thread. *Outstanding* are stamped batches whose fate is not settled: in flight, or returned for a
retry. Three things can put a partition out of step; none of them is acted on before all its answers are in:

- ``returned``: some are to be sent again: all outstanding ones go back to the queue together, in sequence order;
- ``gap``: a stamped batch was given up, so the broker may miss its sequence: what is outstanding goes first, fresh
  batches wait, and get a new epoch unless a later success shows that nothing is missing;
- ``resequence``: the broker said it misses what comes before the first outstanding batch: all of them get a new epoch.

A broker takes any sequence as the first of a producer that it does not know. So a partition's first batch goes
``alone``: the next one could otherwise be taken where the first was refused, and the first would end up behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.records.batch import NO_SEQUENCE, TRANSACTIONAL

MAX_EPOCH = 32767 - 1  # the broker keeps the last one for fencing
_SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences wrap from 2³¹ - 1 to 0 (Kafka: ``DefaultRecordBatch.incrementSequence``)."""


@dataclass(slots=True)
class PartitionSequence:
    identity: ProducerIdentity
    next: int = 0
    acked_until: int = 0
    in_flight: int = 0
    outstanding: list[ProducerBatch] = field(default_factory=list)
    known: bool = False
    alone: bool = False
    returned: bool = False
    gap: bool = False
    resequence: bool = False

    @property
    def in_step(self) -> bool:
        return not (self.alone or self.returned or self.gap or self.resequence)


class Sequences:
    """All partitions of one producer. Without idempotence every batch carries (-1, -1, -1) and only order is kept.

    A transactional producer's epochs are the coordinator's to give: what is out of step stays so until ``restart``.
    """

    def __init__(self, idempotent: bool, transactional: bool = False) -> None:
        self.idempotent = idempotent
        self.transactional = transactional
        self._flags = TRANSACTIONAL if transactional else 0
        self.identity = NO_IDENTITY
        self._partitions: dict[TopicPartition, PartitionSequence] = {}

    @property
    def needs_identity(self) -> bool:
        return self.idempotent and self.identity is NO_IDENTITY

    @property
    def epochs_ran_out(self) -> bool:
        """A partition waits for a new producer id to be settled with."""
        return self.needs_identity and any(state.resequence or state.gap for state in self._partitions.values())

    @property
    def any_in_flight(self) -> bool:
        return any(state.in_flight for state in self._partitions.values())

    def restart(self, identity: ProducerIdentity) -> None:
        """Begin every sequence anew under ``identity``. Nothing may be outstanding."""
        same = identity.producer_id == self.identity.producer_id
        self.identity = identity
        self._partitions = {
            partition: PartitionSequence(identity, known=True)
            for partition, state in self._partitions.items()
            if same and state.known
        }

    def is_first(self, batch: ProducerBatch) -> bool:
        """Whether nothing outstanding of the partition comes before it."""
        outstanding = self.partition(batch.partition).outstanding
        return bool(outstanding) and outstanding[0] is batch

    def is_overtaken(self, batch: ProducerBatch) -> bool:
        """Whether a later batch of the partition is in the log already: a broker takes any first sequence of a producer
        that it does not know, so it may have refused this batch and taken the next.
        """
        state = self.partition(batch.partition)
        behind = (state.acked_until - batch.base_sequence) & _SEQUENCE_MASK
        return self.idempotent and batch.identity == state.identity and 0 < behind <= _SEQUENCE_MASK // 2

    def partition(self, partition: TopicPartition) -> PartitionSequence:
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = PartitionSequence(self.identity)
        return state

    def send(self, batch: ProducerBatch) -> bool:
        """It is about to be sent. A fresh batch gets the partition's next sequence, and is outstanding from now on.

        Says whether it must go alone.
        """
        state = self.partition(batch.partition)
        if batch.header is None:
            self._stamp(batch, state)
            state.outstanding.append(batch)
        batch.attempts += 1
        state.in_flight += 1
        state.alone = self.idempotent and not state.known
        return state.alone

    def answered(self, batch: ProducerBatch) -> PartitionSequence:
        """One that was sent; gives its partition's state."""
        state = self._partitions[batch.partition]
        state.in_flight -= 1
        return state

    def succeeded(self, batch: ProducerBatch) -> None:
        state = self._partitions[batch.partition]
        state.outstanding.remove(batch)
        if batch.identity == state.identity:
            state.known = True
            state.acked_until = (batch.base_sequence + batch.count) & _SEQUENCE_MASK

    def forgotten(self, batch: ProducerBatch) -> None:
        """The partition is not there. Made again, it knows no producer."""
        self.partition(batch.partition).known = False

    def gave_up(self, batch: ProducerBatch) -> None:
        """The batch failed or expired; whether its records are in the log may be unknown."""
        state = self.partition(batch.partition)
        if batch in state.outstanding:  # unless a stray exception struck right after it was taken out
            state.outstanding.remove(batch)
        state.gap = self.idempotent

    def returned(self, batch: ProducerBatch, misses_earlier: bool) -> None:
        """The batch is to be sent again; ``misses_earlier``: the broker refused it for its sequence or epoch."""
        state = self.partition(batch.partition)
        state.returned = True
        if misses_earlier and state.outstanding[0] is batch:
            state.resequence = self.idempotent

    def split(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Parts take the batch's place: consecutive slices of its sequences, so that later batches keep theirs."""
        state = self.partition(batch.partition)
        place = state.outstanding.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.stamp(batch.identity, sequence, self._flags)
            if self.idempotent:
                sequence = (sequence + part.count) & _SEQUENCE_MASK
        state.outstanding[place : place + 1] = parts
        state.returned = True

    def settle(self, partition: TopicPartition) -> list[ProducerBatch]:
        """With nothing in flight any more: get back in step, and give the batches to reenqueue, if any.

        When the epochs have run out the partition stays out of step, until there is a new producer id to settle with.
        """
        state = self.partition(partition)
        state.alone = False
        lost = state.resequence or (state.gap and not state.outstanding and state.acked_until != state.next)
        if lost and not self._start_epoch(state):
            return []
        if state.resequence:
            for batch in state.outstanding:
                self._stamp(batch, state)
        again = state.outstanding if state.returned else []
        state.returned = False
        state.gap = state.gap and not lost and bool(state.outstanding)
        state.resequence = False
        return list(again)

    def out_of_step(self) -> list[TopicPartition]:
        """Partitions that wait to be settled, with nothing in flight: a new producer id may free them."""
        return [partition for partition, state in self._partitions.items() if not state.in_step and not state.in_flight]

    def _stamp(self, batch: ProducerBatch, state: PartitionSequence) -> None:
        sequence = NO_SEQUENCE
        if self.idempotent:
            sequence = state.next
            state.next = (sequence + batch.count) & _SEQUENCE_MASK
        batch.stamp(state.identity, sequence, self._flags)

    def _start_epoch(self, state: PartitionSequence) -> bool:
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
