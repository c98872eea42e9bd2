"""The log of one partition, in memory (Kafka: ``UnifiedLog``, ``TransactionIndex``).

Emulated: offsets given at append and written into the stored batch with the leader epoch (both outside the CRC),
reading from any offset on, look-up by timestamp, transaction markers, the last stable offset and the index of aborted
transactions; ``message.timestamp.type=LogAppendTime``: the broker's time in the header of each batch counts for all its
records.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from crc32c import crc32c

from spark_kafka_sink.exactly_once.decode import BatchView
from spark_kafka_sink.records.batch import CONTROL, CRC_END, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, stamp_header

_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_LEADER_EPOCH_AT: Final = 12
_LEADER_EPOCH_END: Final = 16
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_CONTROL_RECORD: Final = struct.Struct(">bbbbbhhbhib")


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A record batch, as in a Fetch response."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    data: bytes


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction, from its first record to its marker, both included."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of a transaction, as its coordinator writes it to each partition."""

    producer_id: int
    epoch: int
    committed: bool


class UnifiedLog:
    """The log of a partition. ``start_offset``: the first offset. ``end_offset``: the offset of the next record."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.aborted: list[AbortedTransaction] = []
        self._first_offset_of_ongoing: dict[int, int] = {}

    def append(self, data: bytes, header: BatchView, leader_epoch: int, append_time: int | None = None) -> int:
        """Store one batch at the end, and return its base offset. ``append_time``: replaces the records' timestamps."""
        base = self.end_offset
        if header.is_transactional:
            self._first_offset_of_ongoing.setdefault(header.producer_id, base)
        timestamp = header.max_timestamp
        if append_time is not None:
            timestamp = append_time
            data = _stamped(data, header.attributes | LOG_APPEND_TIME, timestamp)
        elif header.is_log_append_time:
            data = _stamped(data, header.attributes & ~LOG_APPEND_TIME, timestamp)
        self._store(data, header.last_offset_delta, timestamp, leader_epoch)
        return base

    def append_marker(self, marker: EndTransactionMarker, leader_epoch: int, now_ms: int) -> None:
        first = self._first_offset_of_ongoing.pop(marker.producer_id, None)
        if not marker.committed and first is not None:
            self.aborted.append(AbortedTransaction(marker.producer_id, first, self.end_offset))
        self._store(_control_batch(marker, now_ms), 0, now_ms, leader_epoch)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset that a read_committed consumer may not read yet."""
        return min([high_watermark, *self._first_offset_of_ongoing.values()])

    def has_ongoing(self, producer_id: int) -> bool:
        return producer_id in self._first_offset_of_ongoing

    def batches_from(self, offset: int, end: int) -> Iterator[StoredBatch]:
        """Whole batches, from the batch that holds ``offset`` to the last one that ends before ``end``."""
        first = max(0, bisect_right(self.batches, offset, key=attrgetter("base_offset")) - 1)
        for batch in self.batches[first:]:
            if batch.last_offset >= end:
                return
            if batch.last_offset >= offset:
                yield batch

    def aborted_between(self, first: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in ``[first, end)``."""
        return [each for each in self.aborted if each.first_offset < end and each.last_offset >= first]

    def delete_records(self, before: int) -> None:
        """Move the log start offset, as retention or DeleteRecords does; whole batches below it go."""
        self.start_offset = min(max(before, self.start_offset), self.end_offset)
        self.batches = [batch for batch in self.batches if batch.last_offset >= self.start_offset]

    def _store(self, data: bytes, last_offset_delta: int, max_timestamp: int, leader_epoch: int) -> None:
        base = self.end_offset
        stored = b"".join(
            (
                _BASE_OFFSET.pack(base),
                data[_BASE_OFFSET.size : _LEADER_EPOCH_AT],
                _LEADER_EPOCH.pack(leader_epoch),
                data[_LEADER_EPOCH_END:],
            )
        )
        self.batches.append(StoredBatch(base, base + last_offset_delta, max_timestamp, stored))
        self.end_offset = base + last_offset_delta + 1


def _stamped(data: bytes, attributes: int, max_timestamp: int) -> bytes:
    """The batch with other attributes and timestamp (Kafka: ``setMaxTimestamp``); the CRC covers both fields."""
    stamped = bytearray(data)
    _ATTRIBUTES.pack_into(stamped, CRC_END, attributes)
    _MAX_TIMESTAMP.pack_into(stamped, _MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(stamped, CRC_END - _CRC.size, crc32c(memoryview(stamped)[CRC_END:]))
    return bytes(stamped)


def _control_batch(marker: EndTransactionMarker, now_ms: int) -> bytes:
    """One control record (Kafka: ``ControlRecordType``, ``EndTransactionMarker``); coordinator epoch 0."""
    record_length = _CONTROL_RECORD.size - 1
    record = _CONTROL_RECORD.pack(record_length << 1, 0, 0, 0, 4 << 1, 0, int(marker.committed), 6 << 1, 0, 0, 0)
    header = BatchHeader(
        attributes=TRANSACTIONAL | CONTROL,
        record_count=1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.epoch,
    )
    return stamp_header(header, [record]) + record
