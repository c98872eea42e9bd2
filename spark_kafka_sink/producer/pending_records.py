"""``PendingRecords``: records of one topic that ``send`` has buffered and that are appended together."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.producer.buffer_pool import Reservation
from spark_kafka_sink.producer.claim import Claim
from spark_kafka_sink.producer.future_record_metadata import ProduceRequestResult
from spark_kafka_sink.producer.partitioner import NOT_GIVEN
from spark_kafka_sink.producer.sender import Callbacks
from spark_kafka_sink.records.columns import RecordColumns, bytes_column, slot_lengths
from spark_kafka_sink.records.encode import NO_HEADERS

RECORD_OVERHEAD = 40
"""An upper bound of a record's bytes without its key, value and headers."""

SHARED = 0
"""``owner`` of records that any thread may add to, under the topic's lock."""


class CheckedRecord(NamedTuple):
    """A record that can be encoded, whatever is encoded with it. ``headers``: encoded; ``size``: an upper bound of its
    bytes; ``sent_ms``: its timestamp if it has none (epoch ms).
    """

    key: bytes | None
    value: bytes | None
    headers: bytes | None
    partition: int | None
    timestamp: int | None
    size: int
    sent_ms: int


class PendingRecords:
    """Guarded by its topic's lock until it is closed; then it belongs to the thread that appends it.

    Its ``owner``, a thread, adds values and keys and takes from ``room`` without the lock, see ``TopicPendingRecords``.
    Only the first ``rows`` records count once it is closed. ``room``: bytes it takes before the lock is needed, up to
    ``allowed`` (it has memory for these) or ``wake_at`` (the sender is woken). Partitions, timestamps and headers,
    which few records have, are kept by index; ``keys`` ends with the last key. The times of ``send`` are kept by the
    millisecond; the next one begins at ``next_ms_at`` (epoch s).
    """

    def __init__(self, result: ProduceRequestResult, snapshot: ClusterSnapshot, created: float) -> None:
        self.result = result
        self.snapshot = snapshot
        self.created = created
        self.owner = SHARED
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.partitions: dict[int, int] = {}
        self.timestamps: dict[int, int] = {}
        self.headers: dict[int, bytes] = {}
        self.only_values = True
        self.claim = Claim(Reservation())
        self.allowed = self.wake_at = self.rows = 0
        self.room = self._mark = -1
        self.next_ms_at = 0.0
        self.closed = False

    @property
    def topic(self) -> str:
        return self.result.topic

    @property
    def size(self) -> int:
        """An upper bound of the encoded bytes."""
        return self._mark - self.room

    def grant(self, more: Reservation, size: int, limit: int) -> None:
        """Take over ``more`` memory; records may fill half of it all, or one of ``size`` bytes."""
        memory = self.claim.memory
        memory.size, more.size = memory.size + more.size, 0
        half = min(limit, memory.size // 2)
        self.allowed = half if self.values else max(size, half)

    def make_room(self, most: int) -> None:
        """Allow up to ``most`` bytes to be added without the lock."""
        size = self.size
        self._mark = min(self.allowed, self.wake_at - 1, size + most)
        self.room = self._mark - size

    def knows(self, partition: int) -> bool:
        return partition < (self.snapshot.partition_counts.get(self.topic) or 0)

    def note_time(self, ms: int) -> None:
        """The next record is sent at ``ms``. When a clock is set back, it is late by at most the time until these
        records are closed.
        """
        self.result.times.note(len(self.values), ms)
        self.next_ms_at = (ms + 1) / 1000.0

    def add(self, record: CheckedRecord) -> int:
        """Returns the record's index."""
        index = len(self.values)
        try:
            self._forget_fields()
            times = self.result.times.runs
            if not times or times[-1].ms != record.sent_ms:
                self.note_time(record.sent_ms)
            if record.key is not None:
                self._add_key(index, record.key)
            if record.partition is not None:
                self.only_values = False
                self.partitions[index] = record.partition
            if record.timestamp is not None:
                self.only_values = False
                self.timestamps[index] = record.timestamp
            if record.headers is not None:
                self.only_values = False
                self.headers[index] = record.headers
            if record.value is None:
                self.only_values = False
            self.values.append(record.value)
        except BaseException:
            self._forget_fields()
            raise
        self.room -= record.size
        return index

    def add_fields(self, key: bytes | None, value: bytes) -> None:
        """A record with key and value only. Needed after records of another kind, and after an interrupt between a
        record's key and its value.
        """
        try:
            self._forget_fields()
            if key is not None:
                self._add_key(len(self.values), key)
            self.values.append(value)
        except BaseException:
            self._forget_fields()
            raise

    def _add_key(self, index: int, key: bytes) -> None:
        """Before the value: a record is added when its value is."""
        self.only_values = False
        keys = self.keys
        if len(keys) < index:
            keys.extend([None] * (index - len(keys)))
        keys.append(key)

    def _forget_fields(self) -> None:
        """An interrupt came before the record's value was added: the next record must not get its other fields."""
        rows = len(self.values)
        del self.keys[rows:]
        for fields in (self.partitions, self.timestamps, self.headers):
            fields.pop(rows, None)

    def close(self) -> None:
        """Accept no further record: only those so far count."""
        self.closed = True
        self.rows = len(self.values)

    def values_only(self) -> tuple[list[bytes], list[int]]:
        """The values, where records have nothing else, and their lengths."""
        values = cast("list[bytes]", self.values[: self.rows])
        lengths = self.result.value_sizes = list(map(len, values))
        return values, lengths

    def columns(self) -> RecordColumns:
        """``timestamps``: None where all records were sent in one millisecond."""
        rows = self.rows
        headers = timestamps = None
        if self.headers:
            headers = bytes_column([self.headers.get(row, NO_HEADERS) for row in range(rows)])
        if len(self.result.times.runs) > 1 or self.timestamps:
            timestamps = self.result.times.column(rows)
        if timestamps is not None and self.timestamps:
            timestamps[list(self.timestamps)] = list(self.timestamps.values())
            self.result.timestamps = timestamps.tolist()
        keys = self.keys[:rows]
        keys.extend([None] * (rows - len(keys)))
        key_column, self.result.key_sizes = _column(keys)
        value_column, self.result.value_sizes = _column(self.values[:rows])
        if key_column is None and value_column is None:
            value_column = bytes_column([None] * rows)  # the number of rows is the length of some column
        return RecordColumns(key_column, value_column, headers, timestamps)

    def explicit_partitions(self) -> npt.NDArray[np.int32] | None:
        return _filled(self.partitions, self.rows, NOT_GIVEN, np.int32) if self.partitions else None


CLOSED = PendingRecords(ProduceRequestResult("", Callbacks(lambda: None)), ClusterSnapshot(), 0.0)
"""Stands where no records are open: it takes none."""

CLOSED.allowed = -1


def _column(values: list[bytes | None]) -> tuple[pa.BinaryArray | None, npt.NDArray[np.int32] | None]:
    """The column and the size of each slot, -1 where it is null; None where all are."""
    if values[0] is None and values.count(None) == len(values):
        return None, None
    column = bytes_column(values)
    return column, slot_lengths(column)


def _filled(given: dict[int, int], rows: int, default: int, kind: type[np.signedinteger]) -> np.ndarray:
    column = np.full(rows, default, kind)
    column[list(given)] = list(given.values())
    return column
