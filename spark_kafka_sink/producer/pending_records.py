"""``PendingRecords``: records of one topic that ``send`` has buffered and that are appended together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.common.model import ClusterSnapshot
from spark_kafka_sink.producer.buffer_pool import Reservation
from spark_kafka_sink.producer.claim import Claim
from spark_kafka_sink.producer.future_record_metadata import FIELDS, ProduceRequestResult
from spark_kafka_sink.producer.partitioner import NOT_GIVEN
from spark_kafka_sink.producer.sender import Callbacks
from spark_kafka_sink.records.columns import Int32Array, Int64Array, RecordColumns, bytes_column
from spark_kafka_sink.records.encode import NO_HEADERS

RECORD_OVERHEAD = 40
"""An upper bound of a record's bytes without its key, value and headers."""

SHARED = 0
"""``owner`` of records that any thread may add to, under the topic's lock."""


class OtherFields(NamedTuple):
    """What few records have. ``headers``: encoded."""

    partition: int | None
    timestamp: int | None
    headers: bytes | None


@dataclass(slots=True, eq=False, repr=False)
class PendingRecords:
    """Guarded by its topic's lock until it is closed; then it belongs to the thread that appends it.

    Its ``owner``, a thread, adds rows and takes from ``room`` without the lock, see ``SendBuffer``.
    """

    result: ProduceRequestResult
    snapshot: ClusterSnapshot
    created: float
    claim: Claim
    owner: int = SHARED
    rows: list[Any] = field(default_factory=list)
    """Key, value, and other fields or None of each record, all in one list: one step, which no signal, finalizer or
    other thread divides, adds a record, and columns are slices."""
    sent: list[tuple[int, int]] = field(default_factory=list)
    """When records were sent, by the millisecond: the first record of each, and the time (epoch ms)."""
    next_ms_at: float = 0.0
    """When the next one begins (epoch s)."""
    room: int = 0
    """Bytes of records that it takes without the lock."""
    rooms_behind: list[int] = field(default_factory=list)
    """Bytes that it takes afterwards. The sender is woken as each of these begins."""
    size_limit: int = 0
    closed: bool = False
    columns: tuple[list[Any], ...] = ()

    def open(self, most: int, batch_size: int) -> None:
        """Take up to ``most`` bytes of records. The first one starts linger.ms, and ``batch_size`` bytes do not wait
        for its end.
        """
        self.size_limit = most
        lingers = min(most, batch_size - 1)
        self.rooms_behind = [lingers, most - lingers]

    @property
    def topic(self) -> str:
        return self.result.topic

    @property
    def size(self) -> int:
        """An upper bound of the encoded bytes."""
        return self.size_limit - self.room - sum(self.rooms_behind)

    @property
    def count(self) -> int:
        """The number of records: once it is closed, of those that count."""
        return len(self.columns[0]) if self.columns else len(self.rows) // FIELDS

    def knows(self, partition: int | None) -> bool:
        return partition is None or partition < (self.snapshot.partition_counts.get(self.topic) or 0)

    def close(self) -> None:
        """Accept no further record: only those so far count. The owner may add one just now; it then sees that."""
        self.closed = True
        self.result.rows = self.count
        end = FIELDS * self.result.rows
        self.columns = tuple(self.rows[field:end:FIELDS] for field in range(FIELDS))

    def note_time(self, ms: int) -> None:
        """The next record is sent at ``ms``. When a clock is set back, it is late by at most the time until these
        records are closed.
        """
        self.sent.append((self.count, ms))
        self.next_ms_at = (ms + 1) / 1000.0

    def times(self) -> Int64Array | int:
        """When the records were sent (epoch ms); one time if all were sent in one ms."""
        if len(self.sent) == 1:
            return self.sent[0][1]
        starts, times = zip(*self.sent, strict=True)
        # The last one may be meant for a record that does not count.
        return np.repeat(np.array(times), np.diff(np.minimum(starts, self.count), append=self.count))

    def values_only(self) -> tuple[list[bytes], list[int]] | None:
        """The values and their lengths, where records have nothing else."""
        keys, values, others = self.columns
        if keys.count(None) == others.count(None) == len(values):
            with suppress(TypeError):  # a value is None
                return values, list(map(len, values))
        return None

    def record_columns(self, times: Int64Array | int) -> tuple[RecordColumns, Int32Array | None]:
        """The records, and the partitions that they name. ``timestamps`` are there where records have their own."""
        keys, values, others = self.columns
        explicit = headers = timestamps = None
        if others.count(None) < len(others):
            partitions, own_times, sections = zip(*(other or NO_OTHERS for other in others), strict=True)
            explicit = _fill(partitions, NOT_GIVEN, np.int32)
            timestamps = _fill(own_times, times, np.int64)
            if any(sections):
                headers = bytes_column([section or NO_HEADERS for section in sections])
        key, value = _column(keys), _column(values)
        if key is None and value is None:
            value = bytes_column(values)  # the number of rows is the length of some column
        return RecordColumns(key, value, headers, timestamps), explicit


NO_OTHERS = OtherFields(None, None, None)

CLOSED = PendingRecords(ProduceRequestResult("", Callbacks(lambda: None)), ClusterSnapshot(), 0.0, Claim(Reservation()))
"""Stands where no records are open: it takes none."""


def _column(values: list[bytes | None]) -> pa.BinaryArray | None:
    """None where all are."""
    return None if values[0] is None and values.count(None) == len(values) else bytes_column(values)


def _fill(
    given: Sequence[int | None], others: Int64Array | int, kind: type[np.signedinteger]
) -> npt.NDArray[Any] | None:
    """The numbers that are given, with ``others`` between them; None if none is."""
    rows = [row for row, number in enumerate(given) if number is not None]
    column = np.full(len(given), others, kind)
    column[rows] = [given[row] for row in rows]
    return column if rows else None
