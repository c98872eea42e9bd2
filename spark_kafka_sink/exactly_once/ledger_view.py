"""What the ledger's log adds up to for one name.

The log is read uncommitted, as others' open transactions would hide what was committed behind them; the control records
of each producer id say what becomes of its records. No I/O: batches come in as they lie in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once.ledger_format import RecordKey, read_entry, read_key, read_marker
from spark_kafka_sink.exactly_once.raw_batch import RawBatch
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry, EntryState
from spark_kafka_sink.model import ProducerIdentity
from spark_kafka_sink.records.decode import DecodedRecord
from spark_kafka_sink.transactions.values import END_TXN_V2, PreparedTransaction, TransactionalIdentity


class _Written(NamedTuple):
    """A record of this name, and what its batch's header says of the writer."""

    key: RecordKey
    value: bytes | None
    producer_id: int
    epoch: int
    sequence: int


class LedgerView:
    """Fed in the order of the log, from its start or from where an earlier reading ended.

    ``removed``: queries whose entry was removed as done. ``foreign``: how many records are none of this sink's.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.removed: set[str] = set()
        self.foreign = 0
        self._written: dict[str, _Written] = {}
        self._entries: dict[str, Entry] = {}
        self._markers: dict[RecordKey, bytes] = {}
        self._undecided: dict[int, tuple[int, list[_Written]]] = {}
        self._last: _Written | None = None

    def apply(self, batches: Iterable[RawBatch]) -> None:
        """A record that is in no transaction decides nothing: a plain append may come from anyone."""
        for batch in batches:
            if batch.is_control:
                if batch.producer_id in self._undecided:
                    self._end(batch)
            elif not batch.is_transactional:
                keys = [read_key(record.key) for record in self.records(batch)]
                self.foreign += sum(key is None or key.query is not None for key in keys)
            elif ours := self._ours(batch):
                epoch, pending = self._undecided.get(batch.producer_id, (None, []))
                if epoch != batch.epoch:
                    pending = []
                self._undecided[batch.producer_id] = batch.epoch, pending + ours

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Query → its last entry. Raises ``ExactlyOnceError`` when one cannot be read, or is of a later release: the
        entry before it does not count any more."""
        for query, written in self._written.items():
            if query not in self._entries:
                assert written.value is not None
                self._entries[query] = read_entry(written.key, written.value)
        return self._entries

    def writer(self, query: str) -> ProducerIdentity:
        """Whose record the query's entry is."""
        written = self._written[query]
        return ProducerIdentity(written.producer_id, written.epoch)

    def committed(self, query: str, number: int, task: int) -> bool:
        """Of version 1's entries: whether the marker in this partition says that the task's rows are committed."""
        key = RecordKey(self.name, query, task)
        return key in self._markers and read_marker(key, self._markers[key]).number == number

    def undecided(self, prepared: PreparedTransaction) -> bool:
        """Whether this transaction is in the log, and neither committed nor aborted there."""
        epoch, _ = self._undecided.get(prepared.producer_id, (None, ()))
        return epoch == prepared.epoch

    def continues(self, handed: DriverIdentity, fence: TransactionalIdentity) -> bool:
        """Whether nobody took the fence between ``handed``, which a commit got from its planning, and ``fence``.

        The last entry is then this commit's done record, and only its EndTxn (transactions v2) and the InitProducerId
        of ``fence`` have raised the epoch since. Nothing that was acknowledged can be missing behind it.
        """
        last = self._last
        entry = None if last is None else self.entries.get(last.key.query or "")
        if last is None or entry is None or entry.state is not EntryState.DONE:
            return False
        bumps = 2 if handed.identity.end_txn_version >= END_TXN_V2 else 1
        return (
            last.producer_id == handed.identity.producer_id == fence.producer_id
            and (last.epoch, last.sequence) >= (handed.identity.epoch, handed.sequence)
            and last.epoch + bumps == fence.epoch
        )

    def _ours(self, batch: RawBatch) -> list[_Written]:
        ours = []
        for record in self.records(batch):
            key = read_key(record.key)
            if key is None:
                self.foreign += 1
            elif key.name == self.name and key.query is not None:
                ours.append(_Written(key, record.value, batch.producer_id, batch.epoch, batch.sequence))
        return ours

    def records(self, batch: RawBatch) -> Iterable[DecodedRecord]:
        """None of a batch that is intact and does not decode: another client is its writer."""
        try:
            return batch.records()
        except CorruptRecordError:
            if not batch.is_intact:
                raise
            self.foreign += max(batch.record_count, 0)
            return ()

    def _end(self, batch: RawBatch) -> None:
        _, pending = self._undecided.pop(batch.producer_id)
        if not batch.is_commit:
            return
        for each in pending:
            if each.key.task is not None:
                self._mark(each)
            else:
                self._enter(each)

    def _enter(self, written: _Written) -> None:
        query = written.key.query
        assert query is not None
        self._entries.pop(query, None)
        self._last = written
        if written.value is None:
            self._written.pop(query, None)
            self.removed.add(query)
        else:
            self._written[query] = written
            self.removed.discard(query)

    def _mark(self, written: _Written) -> None:
        if written.value is None:
            self._markers.pop(written.key, None)
        else:
            self._markers[written.key] = written.value


class MarkerOutcomes:
    """What became of transactions that are gone, told by the markers at their offsets and the control records behind.

    Compaction keeps the marker of a committed transaction as long as its batch is the last, and leaves nothing of an
    aborted one: once the log is read past an offset, no marker there means that the rows are gone.
    """

    def __init__(self, markers: Mapping[int, tuple[int, PreparedTransaction]]) -> None:
        """``markers``: task → the offset of its marker, and its transaction."""
        self.committed: set[int] = set()
        self.next_offset = min((offset for offset, _ in markers.values()), default=0)
        self._ahead = {prepared.identity: (offset, task) for task, (offset, prepared) in markers.items()}
        self._open: dict[int, int] = {}

    @property
    def decided(self) -> bool:
        return not self._ahead and not self._open

    def apply(self, batches: Iterable[RawBatch], next_offset: int) -> None:
        """What is in the log from ``next_offset`` of before up to this one."""
        for batch in batches:
            if batch.is_control:
                task = self._open.pop(batch.producer_id, None)
                if task is not None and batch.is_commit:
                    self.committed.add(task)
                continue
            offset, task = self._ahead.get(ProducerIdentity(batch.producer_id, batch.epoch), (-1, -1))
            if batch.base_offset <= offset <= batch.last_offset and any(r.offset == offset for r in batch.records()):
                self._open[batch.producer_id] = task
        self._ahead = {identity: at for identity, at in self._ahead.items() if at[0] >= next_offset}
        self.next_offset = next_offset
