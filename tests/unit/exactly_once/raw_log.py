"""A ledger's log in bytes, as a Fetch response has it."""

from __future__ import annotations

import struct

import numpy as np
from crc32c import crc32c

from spark_kafka_sink.exactly_once.ledger_format import raw_batches
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.batch import CONTROL, TRANSACTIONAL, BatchHeader, stamp_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import encode_records

COMMIT, ABORT = 1, 0


class RawLog:
    """Each method appends; ``take`` gives what came since the last call, ``next_offset`` is where the next goes."""

    def __init__(self, start=0):
        self.next_offset = start
        self._data = b""

    def records(self, producer, *records, attributes=TRANSACTIONAL, epoch=2, sequence=0, payload=None):
        """``records``: keys and values; a base offset of its own is given back."""
        columns = RecordColumns(
            bytes_column([key for key, _ in records]), bytes_column([value for _, value in records])
        )
        if payload is None:
            payload = bytes(encode_records(columns, np.arange(len(records)), 0).data)
        header = BatchHeader(attributes, len(records), 0, 0, producer, epoch, sequence)
        base, self.next_offset = self.next_offset, self.next_offset + len(records)
        data = stamp_header(header, [payload]) + payload
        self._data += struct.pack(">q", base) + data[8:]
        return base

    def end(self, producer, how, epoch=2):
        return self.records(
            producer, (struct.pack(">hh", 0, how), b""), attributes=TRANSACTIONAL | CONTROL, epoch=epoch, sequence=-1
        )

    def emptied(self, producer, epoch=2):
        """A batch of which compaction has left the header, as it is the producer's last."""
        header = BatchHeader(TRANSACTIONAL, 1, 0, 0, producer, epoch, 0)
        data = bytearray(stamp_header(header, []))
        struct.pack_into(">i", data, 57, 0)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
        base, self.next_offset = self.next_offset, self.next_offset + 1
        self._data += struct.pack(">q", base) + bytes(data)[8:]
        return base

    def skip(self, offsets):
        """What compaction has removed."""
        self.next_offset += offsets

    def take(self):
        data, self._data = self._data, b""
        return list(raw_batches(data))
