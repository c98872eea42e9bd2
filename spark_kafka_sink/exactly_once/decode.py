"""A reader of record batches v2, slow and byte by byte, for tests, the TestBroker and the ledger.

Tests compare ``encode`` with it, so it shares no code with ``encode``. It checks CRC, lengths, counts and offsets, and
raises ``CorruptRecordError`` for any contradiction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

from crc32c import crc32c

from spark_kafka_sink.common.compression import MAX_DECOMPRESSED_SIZE, decompress
from spark_kafka_sink.errors import CorruptRecordError

_FIXED_PART = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_ENDS = 12
_BEFORE_ATTRIBUTES = 21
_MIN_VARINT32, _MAX_VARINT32 = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class BatchView:
    """The header fields of a batch, whose bytes are ``data[position:position + size]``."""

    position: int
    size: int
    crc_ok: bool
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec_id(self) -> int:
        return self.attributes & 0b111

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & 0b1000)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & 0b1_0000)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0b10_0000)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """One record; ``timestamp``: epoch ms."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    header: BatchView
    records: tuple[DecodedRecord, ...]


def batch_headers(data: bytes | memoryview, *, partial_tail: bool = False) -> list[BatchView]:
    """The headers of the consecutive batches in ``data``. Records are not decoded, but their CRC is checked.

    ``partial_tail``: skip a last batch that is cut short, as in a Fetch response.
    """
    views: list[BatchView] = []
    position = 0
    while position < len(data):
        left = len(data) - position
        if left < _FIXED_PART.size:
            if partial_tail:
                break
            raise CorruptRecordError(f"byte {position}: {left} bytes are left, a batch header takes {_FIXED_PART.size}")
        base_offset, length, *fields = _FIXED_PART.unpack_from(data, position)
        size = length + _BEFORE_LENGTH_ENDS
        crc_ok = crc32c(memoryview(data)[position + _BEFORE_ATTRIBUTES : position + max(size, 0)]) == fields[2]
        view = BatchView(position, size, crc_ok, base_offset, *fields)
        if view.magic != 2:
            raise CorruptRecordError(f"byte {position}: magic {view.magic} instead of 2")
        if view.size < _FIXED_PART.size:
            raise CorruptRecordError(f"byte {position}: a batch cannot be {view.size} bytes long")
        if view.size > left:
            if partial_tail:
                break
            raise CorruptRecordError(f"byte {position}: the batch takes {view.size} bytes, {left} are left")
        views.append(view)
        position += view.size
    return views


def decode_batches(
    data: bytes | memoryview, *, partial_tail: bool = False, max_size: int = MAX_DECOMPRESSED_SIZE
) -> list[DecodedBatch]:
    """The consecutive batches in ``data`` with their records.

    ``partial_tail``: as in ``batch_headers``. ``max_size``: the most bytes of one batch's decompressed records.
    """
    views = batch_headers(data, partial_tail=partial_tail)
    return [DecodedBatch(view, _records(bytes(data[view.position :][: view.size]), view, max_size)) for view in views]


def _records(batch: bytes, view: BatchView, max_size: int) -> tuple[DecodedRecord, ...]:
    where = f"batch at byte {view.position}"
    if not view.crc_ok:
        computed = crc32c(batch[_BEFORE_ATTRIBUTES:])
        raise CorruptRecordError(f"{where}: stored crc = {view.crc}, computed crc = {computed}")
    payload = batch[_FIXED_PART.size :]
    reader = _RecordReader(decompress(view.codec_id, payload, max_size) if view.codec_id else payload)
    try:
        records = [_record(reader, view) for _ in range(view.record_count)]
    except IndexError:
        raise CorruptRecordError(f"{where}: fewer than {view.record_count} records are there") from None
    if reader.position != len(reader.data):
        raise CorruptRecordError(f"{where}: bytes are left behind {view.record_count} records")
    offsets = [record.offset for record in records]
    if any(after <= before for before, after in pairwise(offsets)):
        raise CorruptRecordError(f"{where}: offsets do not grow")
    if offsets and not view.base_offset <= offsets[0] <= offsets[-1] <= view.last_offset:
        raise CorruptRecordError(f"{where}: offsets outside {view.base_offset} to {view.last_offset}")
    return tuple(records)


def _record(reader: _RecordReader, view: BatchView) -> DecodedRecord:
    length = reader.varint()
    start = reader.position
    reader.take(1)
    timestamp = view.base_timestamp + reader.varlong()
    offset = view.base_offset + reader.varint()
    key = reader.nullable_bytes()
    value = reader.nullable_bytes()
    headers: list[tuple[bytes, bytes | None]] = []
    count = reader.varint()
    if count < 0:
        raise CorruptRecordError(f"offset {offset}: {count} headers")
    for _ in range(count):
        name = reader.nullable_bytes()
        if name is None:
            raise CorruptRecordError(f"offset {offset}: null header key")
        headers.append((name, reader.nullable_bytes()))
    if reader.position - start != length:
        raise CorruptRecordError(f"offset {offset}: the record says {length} bytes and has {reader.position - start}")
    if view.is_log_append_time:
        timestamp = view.max_timestamp
    return DecodedRecord(offset, timestamp, key, value, tuple(headers))


class _RecordReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise IndexError
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def varlong(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise CorruptRecordError(f"a varint of more than 10 bytes before byte {self.position} of the records")
        return -(number >> 1) - 1 if number & 1 else number >> 1

    def varint(self) -> int:
        number = self.varlong()
        if not _MIN_VARINT32 <= number <= _MAX_VARINT32:
            raise CorruptRecordError(f"a varint beyond 32 bits before byte {self.position} of the records")
        return number

    def nullable_bytes(self) -> bytes | None:
        length = self.varint()
        if length < -1:
            raise CorruptRecordError(f"a length of {length} before byte {self.position} of the records")
        return None if length == -1 else self.take(length)
