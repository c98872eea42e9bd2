"""Batches of the ledger's log of which only the header is looked at, as most of them are of no interest."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.records.batch import CONTROL, HEADER_SIZE, MAGIC, TRANSACTIONAL
from spark_kafka_sink.records.decode import DecodedRecord, batch_headers, decode_batches

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEFORE_LENGTH_ENDS: Final = 12
_COMMIT: Final = 1
_LARGEST: Final = 64 << 20
"""Bytes of a batch's records when decompressed; the entry of 100,000 tasks takes 8 MiB."""


class RawBatch(NamedTuple):
    """A batch of which only the header was looked at; ``data`` is all of it. CRC and records are not checked."""

    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    epoch: int
    sequence: int
    record_count: int
    data: memoryview

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_commit(self) -> bool:
        """Of a control batch. Its record's key: version and type, 16 bits each (KIP-98)."""
        return any(each.key is not None and int.from_bytes(each.key[2:4]) == _COMMIT for each in self.records())

    @property
    def is_intact(self) -> bool:
        """Whether its bytes are those that its writer sent (CRC)."""
        return batch_headers(self.data)[0].crc_ok

    def records(self) -> tuple[DecodedRecord, ...]:
        """Raises ``CorruptRecordError``."""
        return decode_batches(self.data, max_size=_LARGEST)[0].records


def raw_batches(records: bytes | memoryview) -> Iterator[RawBatch]:
    """The whole batches of a Fetch response; a last one that is cut short is left out.

    A header takes 2 µs, records take 30: a ledger's log is control batches for the most part, and those of other names.
    """
    data, position = memoryview(records), 0
    while position + HEADER_SIZE <= len(data):
        fields = _HEADER.unpack_from(data, position)
        base, length, _, magic, _, attributes, last_delta, _, _, producer_id, epoch, sequence, count = fields
        size = length + _BEFORE_LENGTH_ENDS
        if magic != MAGIC or size < HEADER_SIZE or last_delta < 0:
            raise CorruptRecordError(f"byte {position}: no record batch of magic {MAGIC}")
        if position + size > len(data):
            return
        whole = data[position : position + size]
        yield RawBatch(base, base + last_delta, attributes, producer_id, epoch, sequence, count, whole)
        position += size
