"""What the ledger's log adds up to for one name.

The log is read uncommitted, as others' open transactions would hide what was committed behind them; the control records
of each producer id say what becomes of its records. No I/O: batches come in as decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.commit.format import read_record
from spark_kafka_sink.commit.values import DriverIdentity, Entry, Marker, Stage
from spark_kafka_sink.records.decode import BatchView, DecodedBatch
from spark_kafka_sink.sender.transactions.values import END_TXN_V2, Fence, PreparedTransaction

_COMMIT: Final = 1


class LedgerView:
    """Fed in the order of the log, from its start or from where an earlier reading ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[str, Entry] = {}
        self._markers: dict[tuple[str, int], Marker] = {}
        self._undecided: dict[int, tuple[int, list[tuple[BatchView, Entry | Marker]]]] = {}
        self._last: tuple[BatchView, Entry] | None = None

    def apply(self, batches: Iterable[DecodedBatch]) -> None:
        """A record that is in no transaction decides nothing: a plain append may come from anyone."""
        for batch in batches:
            producer_id = batch.header.producer_id
            if batch.header.is_control:
                self._end(producer_id, batch)
            elif batch.header.is_transactional:
                records = [read_record(self.name, each.key, each.value) for each in batch.records]
                if ours := [(batch.header, record) for record in records if record is not None]:
                    self._undecided.setdefault(producer_id, (batch.header.producer_epoch, []))[1].extend(ours)

    def committed(self, query: str, number: int, task: int) -> bool:
        """Whether the marker says that the task's rows of this batch are committed."""
        marker = self._markers.get((query, task))
        return marker is not None and marker.number == number

    def undecided(self, prepared: PreparedTransaction) -> bool:
        """Whether this transaction is in the log, and neither committed nor aborted there."""
        epoch, _ = self._undecided.get(prepared.producer_id, (None, ()))
        return epoch == prepared.epoch

    def continues(self, handed: DriverIdentity, fence: Fence) -> bool:
        """Whether nobody took the fence between ``handed``, which a commit got from its planning, and ``fence``.

        The last entry is then this commit's done record, and only its EndTxn (transactions v2) and the InitProducerId
        of ``fence`` have raised the epoch since. Nothing that was acknowledged can be missing behind it.
        """
        if self._last is None or self._last[1].stage is not Stage.DONE:
            return False
        last = self._last[0]
        bumps = 2 if fence.end_txn_version >= END_TXN_V2 else 1
        return (
            last.producer_id == handed.fence.producer_id == fence.producer_id
            and (last.producer_epoch, last.base_sequence) >= (handed.fence.epoch, handed.sequence)
            and last.producer_epoch + bumps == fence.epoch
        )

    def _end(self, producer_id: int, batch: DecodedBatch) -> None:
        _, pending = self._undecided.pop(producer_id, (None, ()))
        if not any(_is_commit(record.key) for record in batch.records):
            return
        for header, each in pending:
            if isinstance(each, Entry):
                self.entries[each.query] = each
                self._last = header, each
            else:
                self._markers[each.query, each.task] = each


def _is_commit(key: bytes | None) -> bool:
    """A control record's key: version and type, 16 bits each (KIP-98)."""
    return key is not None and int.from_bytes(key[2:4]) == _COMMIT
