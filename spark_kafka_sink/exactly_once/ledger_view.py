"""The entries that follow from the batches of the ledger's log. No I/O: batches are given in the order of the log.

The log is read uncommitted, because read_committed would stop at another name's open transaction. The control records
of each producer id say whether its records are committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from spark_kafka_sink.common.model import ProducerIdentity
from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once.decode import BatchView, DecodedRecord
from spark_kafka_sink.exactly_once.ledger_format import RawBatch, RecordKey, read_entry, read_key
from spark_kafka_sink.exactly_once.values import DriverIdentity, Entry
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2, PreparedTransaction, TransactionalIdentity


class _Written(NamedTuple):
    """An entry's record, and its batch's header."""

    key: RecordKey
    value: bytes | None
    header: BatchView


class LedgerView:
    """One name's entries, or with the name "" the entries of all names. ``apply`` takes batches in the log's order,
    from its start.

    ``removed``: the queries whose entry was removed as done. ``names``: the names in the keys of all records in
    transactions. ``foreign``: the number of records that this sink did not write. For example, the log has an entry A
    of producer 5, an entry B of producer 9, and a commit of 5: A is an entry now, and B is undecided until the control
    record of 9.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.removed: set[str] = set()
        self.names: set[str] = set()
        self.foreign = 0
        self._written: dict[str, dict[str, _Written]] = defaultdict(dict)
        self._entries: dict[str, dict[str, Entry]] = defaultdict(dict)
        self._undecided: dict[int, tuple[int, list[_Written]]] = {}
        self._last: _Written | None = None

    def apply(self, batches: Iterable[RawBatch]) -> None:
        """Takes further batches. Records outside transactions decide nothing, because a plain append does not prove a
        driver's identity. Markers are ignored here; ``MarkerOutcomes`` looks them up by their offsets.
        """
        for batch in batches:
            if batch.header.is_control:
                if batch.header.producer_id in self._undecided:
                    self._end(batch)
            elif not batch.header.is_transactional:
                keys = [read_key(record.key) for record in self.records(batch)]
                self.foreign += sum(key is None or key.query is not None for key in keys)
            elif written := self._of_this_name(batch):
                epoch, pending = self._undecided.get(batch.header.producer_id, (None, []))
                if epoch != batch.header.producer_epoch:
                    pending = []
                self._undecided[batch.header.producer_id] = batch.header.producer_epoch, pending + written

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Query → its last entry, in the log's order. Raises ``ExactlyOnceError`` for an entry that is unreadable or of
        another release, because the entry before it is no longer valid.
        """
        return self.entries_of(self.name)

    def entries_of(self, name: str) -> Mapping[str, Entry]:
        """The entries of one of the names."""
        entries = self._entries[name]
        for query, written in self._written[name].items():
            if query not in entries:
                assert written.value is not None
                entries[query] = read_entry(written.key, written.value)
        return {query: entries[query] for query in self._written[name]}

    def writer(self, query: str) -> ProducerIdentity:
        """The producer of the query's entry."""
        header = self._written[self.name][query].header
        return ProducerIdentity(header.producer_id, header.producer_epoch)

    def continues(self, planned: DriverIdentity, identity: TransactionalIdentity) -> bool:
        """Whether no other driver came between ``planned``, which planning passed to a commit, and ``identity``.

        If so, the last entry is that commit's done record, and only its EndTxn (transactions v2) and the InitProducerId
        of ``identity`` have bumped the epoch since. No acknowledged record is missing after it. For example, planning
        had epoch 4 under transactions v2, the done record has epoch 5 (the intent's EndTxn bumped it), its own EndTxn
        and InitProducerId bump once each: ``identity`` has epoch 7.
        """
        last = self._last
        entry = None if last is None else self.entries.get(last.key.query or "")
        if last is None or entry is None or not entry.is_done:
            return False
        before, header = planned.identity, last.header
        bumps = 2 if before.end_txn_version >= END_TXN_V2 else 1
        return (
            header.producer_id == before.producer_id == identity.producer_id
            and (header.producer_epoch, header.base_sequence) >= (before.epoch, planned.sequence)
            and header.producer_epoch + bumps == identity.epoch
        )

    def records(self, batch: RawBatch) -> Iterable[DecodedRecord]:
        """The batch's records. Empty for a batch with a valid CRC that does not decode: another client wrote it."""
        try:
            return batch.records()
        except CorruptRecordError:
            if not batch.header.crc_ok:
                raise
            self.foreign += max(batch.header.record_count, 0)
            return ()

    def _of_this_name(self, batch: RawBatch) -> list[_Written]:
        written = []
        for record in self.records(batch):
            key = read_key(record.key)
            if key is None:
                self.foreign += 1
                continue
            self.names.add(key.name)
            if self.name in ("", key.name) and key.query is not None and key.task is None:
                written.append(_Written(key, record.value, batch.header))
        return written

    def _end(self, batch: RawBatch) -> None:
        _, pending = self._undecided.pop(batch.header.producer_id)
        if not batch.is_commit:
            return
        for written in pending:
            self._enter(written)

    def _enter(self, written: _Written) -> None:
        name, query, _ = written.key
        assert query is not None
        self._entries[name].pop(query, None)
        self._last = written
        self._written[name].pop(query, None)  # a query that is written again moves to the end, as its record in the log
        if written.value is None:
            self.removed.add(query)
        else:
            self._written[name][query] = written
            self.removed.discard(query)


class MarkerOutcomes:
    """Finds which transactions committed, by the markers at their offsets and the control records after them.

    Compaction keeps the marker of a committed transaction as long as its batch is the name's last, and nothing of an
    aborted transaction. So once the log is read past a marker's offset, a missing marker means that the rows are lost.
    For example, task 0 has its marker at offset 10 with producer 7, task 1 at 11 with producer 8. The log has 10 (of
    7), 11 (of 8), a commit of 8 and an abort of 7: task 1 is committed. If compaction has removed 10 already, the
    result is the same.
    """

    def __init__(self, markers: Mapping[int, tuple[int, PreparedTransaction]]) -> None:
        """``markers`` maps a task to its marker's offset and its transaction."""
        self.committed: set[int] = set()
        self.next_offset = min((offset for offset, _ in markers.values()), default=0)
        self._ahead = {prepared.identity: (offset, task) for task, (offset, prepared) in markers.items()}
        self._open: dict[int, int] = {}

    @property
    def decided(self) -> bool:
        return not self._ahead and not self._open

    def apply(self, batches: Iterable[RawBatch], next_offset: int) -> None:
        """Takes the log from the current ``next_offset`` up to the new one."""
        for batch in batches:
            if batch.header.is_control:
                task = self._open.pop(batch.header.producer_id, None)
                if task is not None and batch.is_commit:
                    self.committed.add(task)
                continue
            offset, task = self._ahead.get(
                ProducerIdentity(batch.header.producer_id, batch.header.producer_epoch), (-1, -1)
            )
            if batch.header.base_offset <= offset <= batch.header.last_offset and any(
                r.offset == offset for r in batch.records()
            ):
                self._open[batch.header.producer_id] = task
        self._ahead = {identity: at for identity, at in self._ahead.items() if at[0] >= next_offset}
        self.next_offset = next_offset
