"""A partition's state of each idempotent producer (Kafka: ``ProducerStateManager``, ``ProducerAppendInfo``).

Emulated: epochs, sequences with wrap-around, the last five batches of each producer id, and the fence that a
transaction marker leaves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

REMEMBERED_BATCHES: Final = 5
_SEQUENCES: Final = 2**31


@dataclass(frozen=True, slots=True)
class SequenceRange:
    """The sequence numbers of one batch, and its offset."""

    first: int
    last: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer id. ``epoch``: -1 before the first batch. ``batches``: the batches of the current
    epoch, oldest first."""

    epoch: int = -1
    batches: deque[SequenceRange] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


def last_sequence(first: int, record_count: int) -> int:
    """The last sequence number of a batch. Sequence numbers wrap from 2³¹-1 to 0."""
    return (first + record_count - 1) % _SEQUENCES


class ProducerStates:
    """The entries of one partition, by producer id."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._refuses_unknown = False

    def duplicate(self, producer_id: int, epoch: int, first: int, last: int) -> SequenceRange | None:
        """The remembered batch with exactly these sequences, if there is one."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        return next((batch for batch in entry.batches if (batch.first, batch.last) == (first, last)), None)

    def check(self, producer_id: int, epoch: int, first: int) -> ErrorCode:
        """Whether a batch that is not a duplicate may be appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            refused = self._refuses_unknown and first != 0
            return ErrorCode.unknown_producer_id if refused else ErrorCode.none
        if epoch < entry.epoch:
            return ErrorCode.invalid_producer_epoch
        if epoch > entry.epoch:
            return ErrorCode.none if first == 0 else ErrorCode.out_of_order_sequence_number
        expected = (entry.batches[-1].last + 1) % _SEQUENCES if entry.batches else 0
        return ErrorCode.none if first == expected else ErrorCode.out_of_order_sequence_number

    def appended(self, producer_id: int, epoch: int, batch: SequenceRange) -> None:
        entry = self._entries.setdefault(producer_id, ProducerEntry())
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.batches.append(batch)

    def marked(self, producer_id: int, epoch: int) -> None:
        """Notes a transaction marker: an older epoch can no longer write, and a new epoch starts at sequence 0."""
        entry = self._entries.setdefault(producer_id, ProducerEntry())
        if epoch > entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()

    def epoch(self, producer_id: int) -> int:
        """The last epoch seen, -1 when the producer id is unknown."""
        entry = self._entries.get(producer_id)
        return -1 if entry is None else entry.epoch

    def drop(self, *, refuses_unknown: bool) -> None:
        """Forget every producer, as retention does.

        ``refuses_unknown``: respond UNKNOWN_PRODUCER_ID from now on to an unknown producer whose sequence is not 0, as
        brokers before 2.5 did; otherwise take any sequence as the first one, as later brokers do (KIP-360).
        """
        self._entries.clear()
        self._refuses_unknown = refuses_unknown
