"""Records of one topic side by side, as columns, before they are encoded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.model import ClusterSnapshot
from spark_kafka_sink.partitioning.partitioner import NOT_GIVEN
from spark_kafka_sink.producer.record import Headers, ProducerRecord
from spark_kafka_sink.producer.stage_outcome import StageOutcome
from spark_kafka_sink.records.arrow import bytes_column
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns, slot_lengths
from spark_kafka_sink.records.encode import header_section
from spark_kafka_sink.records.sizes import MAX_RECORD_OVERHEAD
from spark_kafka_sink.records.varints import varint_size

RECORD_OVERHEAD = 40
"""More bytes than a record without headers ever takes besides its key and value."""

_NO_HEADERS = b"\0"


class Stage:
    """Guarded by its topic's lock until it is closed; then it belongs to the thread that encodes it.

    ``size`` is an upper bound of the encoded bytes, ``allowed`` how far it may grow, ``wake_at`` the size at which the
    sender is woken next. What few records have is kept by their index.
    """

    __slots__ = (
        "allowed",
        "created",
        "headers",
        "keys",
        "outcome",
        "partitions",
        "reserved",
        "size",
        "snapshot",
        "timestamps",
        "values",
        "wake_at",
    )

    def __init__(self, topic: str, snapshot: ClusterSnapshot, created: float, epoch_ms: int) -> None:
        self.outcome = StageOutcome(topic, epoch_ms)
        self.snapshot = snapshot
        self.created = created
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.partitions: dict[int, int] = {}
        self.timestamps: dict[int, int] = {}
        self.headers: dict[int, Headers] = {}
        self.size = 0
        self.reserved = 0
        self.allowed = 0
        self.wake_at = 0.0

    def grant(self, reserved: int, size: int, limit: int) -> None:
        """More memory is reserved for these records: room for half of it, and at least for one of ``size`` bytes."""
        self.reserved += reserved
        self.allowed = min(limit, self.reserved // 2) if self.values else max(size, min(limit, self.reserved // 2))

    def knows(self, partition: int) -> bool:
        return partition < (self.snapshot.partition_count(self.outcome.topic) or 0)

    def add(self, record: ProducerRecord, key: bytes | None, value: bytes | None, size: int) -> int:
        """The record's index."""
        index = len(self.values)
        self.keys.append(key)
        self.values.append(value)
        self.size += size
        if record.partition is not None:
            self.partitions[index] = record.partition
        if record.timestamp is not None:
            self.timestamps[index] = record.timestamp
        if record.headers is not None:
            self.headers[index] = record.headers
        return index

    def columns(self) -> RecordColumns:
        rows = len(self.values)
        headers = timestamps = None
        if self.headers:
            given = self.headers
            sections = [encode_headers(given[row]) if row in given else _NO_HEADERS for row in range(rows)]
            headers = bytes_column(sections)
        if self.timestamps:
            timestamps = _filled(self.timestamps, rows, self.outcome.default_timestamp, np.int64)
            self.outcome.timestamps = timestamps.tolist()
        keys, key_sizes = _column(self.keys)
        values, value_sizes = _column(self.values)
        self.outcome.sizes = (key_sizes, value_sizes)
        return RecordColumns(keys, values, headers, timestamps)

    def explicit_partitions(self) -> npt.NDArray[np.int32] | None:
        return _filled(self.partitions, len(self.values), NOT_GIVEN, np.int32) if self.partitions else None


CLOSED_STAGE = Stage("", ClusterSnapshot(), 0.0, 0)
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


def _column(values: list[bytes | None]) -> tuple[pa.BinaryArray | None, npt.NDArray[np.int64]]:
    """The column, None where all are null, and the size of each slot, -1 where it is null."""
    if values.count(None) == len(values):
        return None, np.full(len(values), -1, np.int64)
    column = bytes_column(values)
    return column, slot_lengths(column)


def _filled(given: dict[int, int], rows: int, default: int, kind: type[np.signedinteger]) -> np.ndarray:
    column = np.full(rows, default, kind)
    column[list(given)] = list(given.values())
    return column
