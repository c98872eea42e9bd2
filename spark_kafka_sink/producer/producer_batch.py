"""``ProducerBatch``: the records that go to one partition together (Java: ``ProducerBatch``).

- *open*: accepts rows of ``send`` and of small calls; the batches of a larger call are made sealed;
- *sealed*: ``payload`` is set and never changes again;
- *stamped*: ``header`` is set, with producer id, epoch, sequence and CRC. A retry sends the same bytes;
- *done*: every listener was notified.

One object serves all states: a small batch holds a dozen records, so each further object per batch costs CPU.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.common.compression import CODEC_IDS, CODEC_NAMES, compress, decompress
from spark_kafka_sink.common.model import NO_IDENTITY, ProducerIdentity, TopicPartition
from spark_kafka_sink.records.batch import HEADER_SIZE, NO_SEQUENCE, BatchHeader, stamp_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import RecordsPart, cut_records, encode_records

Buffer: TypeAlias = bytes | memoryview

_CUT_BELOW = 0.95
"""The share of the limit at which a compressed batch is cut, because its parts compress a little worse than the
whole."""


class BatchListener(Protocol):
    def batch_completed(self, batch: ProducerBatch, rows: RecordRange) -> None:
        """Called once, on the sender thread, when the records ``rows`` of ``batch`` are in the log or have failed. Must
        not block, and must not keep ``batch.payload``. After a split, each part calls it for its share of the rows.
        """

    def keeps(self, code: int) -> bool:
        """Whether a batch of one record may fail with this code while the other records are sent again."""
        return False

    def row_of(self, position: int) -> int | None:
        """The number that an error names for the row at this position (``RecordRange.start``); None: no number."""
        return None


class RecordRange(NamedTuple):
    """The rows of one append within a batch (Java: the thunks of a batch).

    They are records ``first .. first + rows - 1``, ``size`` bytes before compression. ``start``: the position of the
    first one among all rows of the append, in the order they were encoded.
    """

    listener: BatchListener
    first: int
    rows: int
    size: int
    start: int = 0

    def within(self, start: int, end: int) -> RecordRange | None:
        """The rows among records ``start .. end - 1`` of the batch, which become a batch of their own; None if there
        are none."""
        first, last = max(self.first, start), min(self.first + self.rows, end)
        if first >= last:
            return None
        size = self.size * (last - first) // self.rows
        return RecordRange(self.listener, first - start, last - first, size, self.start + first - self.first)


@dataclass(slots=True, eq=False)
class SharedBuffer:
    """One buffer of encoded rows that several batches hold slices of. Its bytes become free with the last of them."""

    size: int
    users: int = 0
    is_charged: bool = False


class ProducerBatch:
    """A batch of records. Owned by the caller that makes it until it is in the inbox, then by the sender thread.

    - ``limit``: bytes it may grow to, header included; ``size``: upper bound of its bytes while open, then exact;
      ``plain_size``: bytes before compression; ``largest_record``: upper bound in bytes; ``codec``: attribute bits;
    - ``filled``: accepts no further row; ``due``: linger.ms has passed; ``lingers_until``: when it will (monotonic ms);
    - ``own_bytes``, ``shared_buffer``: its memory, see ``BufferPool``;
    - ``attempts``: number of sends; ``last_error``: result of the last failed one;
    - ``parts``: the batches it was split into. They complete instead of it;
    - ``base_offset``, ``log_append_time`` (epoch ms), ``error``: set with ``has_result``. ``UNKNOWN_OFFSET``: acks=0
      or a duplicate that the broker no longer remembers. ``NO_TIMESTAMP``: no LogAppendTime. ``error`` None: delivered.
    """

    __slots__ = (
        "attempts", "base_offset", "base_sequence", "base_timestamp", "buffers", "codec", "count", "created", "done",
        "due", "error", "filled", "has_result", "header", "identity", "largest_record", "last_error", "limit",
        "lingers_until", "log_append_time", "max_timestamp", "own_bytes", "partition", "parts", "payload", "plain_size",
        "record_ranges", "shared_buffer", "size",
    )  # fmt: skip

    base_offset: int
    log_append_time: int
    error: Exception | None

    def __init__(
        self, partition: TopicPartition, created: float, limit: int, base_timestamp: int, linger_ms: float = 0.0
    ) -> None:
        self.partition = partition
        self.created = created
        self.lingers_until = created + linger_ms
        self.limit = limit
        self.base_timestamp = self.max_timestamp = base_timestamp
        self.count = self.own_bytes = self.codec = self.attempts = self.largest_record = 0
        self.size = self.plain_size = HEADER_SIZE
        self.buffers: list[Buffer] = []
        self.record_ranges: list[RecordRange] = []
        self.filled = self.due = self.has_result = self.done = False
        self.shared_buffer: SharedBuffer | None = None
        self.payload: Sequence[Buffer] | None = None
        self.header: bytes | None = None
        self.last_error: Exception | None = None
        self.parts: tuple[ProducerBatch, ...] = ()
        self.identity = NO_IDENTITY
        self.base_sequence = NO_SEQUENCE

    @property
    def record_bytes(self) -> int:
        """Bytes of all records of a sealed batch, before compression."""
        return self.plain_size - HEADER_SIZE

    @classmethod
    def of_columns(
        cls,
        partition: TopicPartition,
        columns: RecordColumns,
        timestamps: npt.NDArray[np.int64],
        codec: str,
        level: int | None,
    ) -> ProducerBatch:
        """A sealed batch of all rows, without a time of creation. ``timestamps``: epoch ms, one per row."""
        base = int(timestamps[0])
        records = encode_records(columns, np.arange(len(columns)), timestamps - base).data
        payload: list[Buffer] = [compress(codec, level, [records]) if CODEC_IDS[codec] else records]
        batch = cls(partition, 0.0, HEADER_SIZE + len(records), base)
        batch.count = len(columns)
        batch.max_timestamp = int(timestamps.max())
        batch.seal(CODEC_IDS[codec], payload, len(records))
        return batch

    def add(self, records: Buffer, rows: RecordRange, max_timestamp: int, largest_record: int) -> None:
        """Append the encoded records of ``rows`` (Java: ``tryAppend``). The caller accounts for their memory."""
        self.buffers.append(records)
        self.record_ranges.append(rows)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        if largest_record > self.largest_record:
            self.largest_record = largest_record

    def seal(self, codec: int, payload: Sequence[Buffer], plain_size: int) -> None:
        """Set the final records; ``plain_size``: their bytes before compression."""
        self.codec = codec
        self.payload = payload
        self.plain_size = HEADER_SIZE + plain_size
        self.size = HEADER_SIZE + sum(map(len, payload)) if codec else self.plain_size

    def stamp(self, identity: ProducerIdentity, base_sequence: int, flags: int = 0) -> None:
        """Give a sealed batch its header; ``flags``: attribute bits besides the codec's."""
        assert self.payload is not None
        self.identity = identity
        self.base_sequence = base_sequence
        header = BatchHeader(
            self.codec | flags, self.count, self.base_timestamp, self.max_timestamp, *identity, base_sequence
        )
        self.header = stamp_header(header, self.payload)

    def split(self, limit: int, level: int | None, alone: Container[int] = ()) -> tuple[ProducerBatch, ...]:
        """Sealed batches of at most ``limit`` bytes, or of one record, in place of this sealed one (Java:
        ``ProducerBatch.split``). ``alone``: indexes of records that get a batch each.
        """
        assert self.payload is not None
        records = b"".join(self.payload)
        most = limit - HEADER_SIZE
        if self.codec:
            most = int(most * _CUT_BELOW * self.record_bytes / len(records))
            records = decompress(self.codec, records)
        parts: list[ProducerBatch] = []
        start = 0
        firsts = [rows.first for rows in self.record_ranges]
        for cut in cut_records(records, most, alone):
            inside = slice(max(bisect_right(firsts, start) - 1, 0), bisect_left(firsts, start + cut.rows))
            part = self._part(start, cut, level, self.record_ranges[inside])
            start += cut.rows
            parts.extend(part.split(limit, level) if part.size > limit and part.count > 1 else (part,))
        return tuple(parts)

    def _part(
        self, start: int, cut: RecordsPart, level: int | None, record_ranges: Sequence[RecordRange]
    ) -> ProducerBatch:
        part = ProducerBatch(self.partition, self.created, self.limit, self.base_timestamp)
        part.count = cut.rows
        part.max_timestamp = self.base_timestamp + cut.latest
        part.largest_record = self.largest_record
        ranges = [range_.within(start, start + cut.rows) for range_ in record_ranges]
        part.record_ranges = [rows for rows in ranges if rows is not None]
        codec = CODEC_NAMES[self.codec] if self.codec else None
        payload: list[Buffer] = [cut.records if codec is None else compress(codec, level, [cut.records])]
        part.seal(self.codec, payload, len(cut.records))
        return part

    def complete(self, base_offset: int, log_append_time: int, error: Exception | None) -> None:
        """Set the result and notify the listeners; on the sender thread, once (Java: ``complete``)."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self.error = error
        self.has_result = True
        self.notify_listeners()

    def notify_listeners(self) -> None:
        """Notify, then drop the records. After an exception, a second call resumes."""
        ranges = self.record_ranges
        while ranges:
            rows = ranges[0]
            rows.listener.batch_completed(self, rows)
            del ranges[0]
        self.buffers = []
        self.payload = ()
        self.done = True
