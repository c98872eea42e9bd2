"""Records of one topic side by side, as columns, before they are encoded."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.accumulator.buffer_pool import Reservation
from spark_kafka_sink.accumulator.claim import Claim
from spark_kafka_sink.append.record import Headers, ProducerRecord
from spark_kafka_sink.append.record_future import StageOutcome
from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, bytes_column, slot_lengths
from spark_kafka_sink.records.encode import NO_HEADERS, header_section
from spark_kafka_sink.records.sizes import MAX_RECORD_OVERHEAD, varint_size
from spark_kafka_sink.sender.callbacks import Callbacks

RECORD_OVERHEAD = 40
"""More bytes than a record without headers ever takes besides its key and value."""


SHARED = 0
"""In place of an owner: any thread may add records, with the topic's lock."""


class PendingRecords:
    """Guarded by its topic's lock until it is closed; then it belongs to the thread that encodes it.

    One thread, its ``owner``, appends values and keys and takes from ``room`` without the lock, see
    ``TopicPendingRecords``; what it has appended since the stage was closed does not count. ``room`` is how many more
    bytes it takes before somebody has to look: until ``allowed`` is reached, the size it has memory for, or
    ``wake_at``, the size at which the sender is woken next. What few records have is kept by their index; ``keys`` ends
    with the last there is.
    """

    __slots__ = (
        "_mark",
        "allowed",
        "claim",
        "closed",
        "created",
        "headers",
        "keys",
        "only_values",
        "outcome",
        "owner",
        "partitions",
        "room",
        "rows",
        "snapshot",
        "timestamps",
        "values",
        "wake_at",
    )

    def __init__(self, outcome: StageOutcome, snapshot: ClusterSnapshot, created: float) -> None:
        self.outcome = outcome
        self.snapshot = snapshot
        self.created = created
        self.owner = SHARED
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.partitions: dict[int, int] = {}
        self.timestamps: dict[int, int] = {}
        self.headers: dict[int, Headers] = {}
        self.only_values = True
        self.claim = Claim(Reservation())
        self.allowed = 0
        self.wake_at = 0
        self.room = -1
        self._mark = -1
        self.closed = False
        self.rows = 0

    @property
    def size(self) -> int:
        """An upper bound of the encoded bytes."""
        return self._mark - self.room

    @property
    def reserved(self) -> int:
        """Bytes of memory that are these records'."""
        return self.claim.memory.size

    def grant(self, more: Reservation, size: int, limit: int) -> None:
        """``more`` memory is for these records: room for half of it all, and at least for one of ``size`` bytes."""
        memory = self.claim.memory
        memory.size, more.size = memory.size + more.size, 0
        half = min(limit, memory.size // 2)
        self.allowed = half if self.values else max(size, half)

    def make_room(self, most: int) -> None:
        """For as many bytes as may come without a look, ``most`` at a time."""
        size = self.size
        self._mark = min(self.allowed, self.wake_at - 1, size + most)
        self.room = self._mark - size

    def knows(self, partition: int) -> bool:
        return partition < (self.snapshot.partition_counts.get(self.outcome.topic) or 0)

    def add(self, record: ProducerRecord, key: bytes | None, value: bytes | None, size: int) -> int:
        """The record's index."""
        index = len(self.values)
        try:
            if key is not None:
                self._add_key(index, key)
            if record.partition is not None:
                self.only_values = False
                self.partitions[index] = record.partition
            if record.timestamp is not None:
                self.only_values = False
                self.timestamps[index] = record.timestamp
            if record.headers is not None:
                self.only_values = False
                self.headers[index] = record.headers
            if value is None:
                self.only_values = False
            self.values.append(value)
        except BaseException:
            self._forget_parts()
            raise
        self.room -= size
        return index

    def add_keyed(self, key: bytes, value: bytes) -> int:
        """A record with no more than these. Its index."""
        index = len(self.values)
        try:
            self._add_key(index, key)
            self.values.append(value)
        except BaseException:
            self._forget_parts()
            raise
        return index

    def _add_key(self, index: int, key: bytes) -> None:
        """Before its value, with which the record is there."""
        self.only_values = False
        keys = self.keys
        if len(keys) < index:
            keys.extend([None] * (index - len(keys)))
        keys.append(key)

    def _forget_parts(self) -> None:
        """An interrupt kept a record's value from being added: the next record must not get its other parts."""
        rows = len(self.values)
        del self.keys[rows:]
        for parts in (self.partitions, self.timestamps, self.headers):
            parts.pop(rows, None)

    def close(self) -> None:
        """No record but those that are there now."""
        self.closed = True
        self.rows = len(self.values)

    def only_bytes(self) -> list[bytes]:
        """The values of a stage that has only these."""
        return cast("list[bytes]", self.values[: self.rows])

    def columns(self) -> RecordColumns:
        rows = self.rows
        headers = timestamps = None
        if self.headers:
            given = self.headers
            sections = [encode_headers(given[row]) if row in given else NO_HEADERS for row in range(rows)]
            headers = bytes_column(sections)
        if self.timestamps:
            timestamps = _filled(self.timestamps, rows, self.outcome.default_timestamp, np.int64)
            self.outcome.timestamps = timestamps.tolist()
        keys = self.keys[:rows]
        keys.extend([None] * (rows - len(keys)))
        key_column, self.outcome.key_sizes = _column(keys)
        value_column, self.outcome.value_sizes = _column(self.values[:rows])
        if key_column is None and value_column is None:
            value_column = bytes_column([None] * rows)  # some column must say how many rows there are
        return RecordColumns(key_column, value_column, headers, timestamps)

    def explicit_partitions(self) -> npt.NDArray[np.int32] | None:
        return _filled(self.partitions, self.rows, NOT_GIVEN, np.int32) if self.partitions else None


CLOSED_STAGE = PendingRecords(StageOutcome("", 0, Callbacks(lambda: None)), ClusterSnapshot(), 0.0)
"""Stands where no stage is open: it takes nothing."""

CLOSED_STAGE.allowed = -1


def headers_size(headers: Headers) -> int:
    """An upper bound of the encoded bytes of ``headers``."""
    return 10 + sum(10 + 3 * len(key) + (0 if value is None else len(value)) for key, value in headers)


def encode_headers(headers: Headers) -> bytes:
    return header_section([(key.encode(), value) for key, value in headers])


def java_estimate(headers: Headers | None, key: bytes | None, value: bytes | None) -> int:
    """What Java's producer holds against max.request.size."""
    sizes = sum(1 if data is None else varint_size(len(data)) + len(data) for data in (key, value))
    return HEADER_SIZE + MAX_RECORD_OVERHEAD + sizes + (1 if headers is None else len(encode_headers(headers)))


def _column(values: list[bytes | None]) -> tuple[pa.BinaryArray | None, npt.NDArray[np.int32] | None]:
    """The column and the size of each slot, -1 where it is null; None where all are."""
    if values.count(None) == len(values):
        return None, None
    column = bytes_column(values)
    return column, slot_lengths(column)


def _filled(given: dict[int, int], rows: int, default: int, kind: type[np.signedinteger]) -> np.ndarray:
    column = np.full(rows, default, kind)
    column[list(given)] = list(given.values())
    return column
