"""A broker's checks of a record batch before it appends it (Kafka: ``LogValidator``, ``UnifiedLog.append``).

Emulated: one batch of magic 2 per partition, size limit, CRC, header counts, no control batches, sequences; that the
records' lengths add up; of compressed batches that they unpack (UNKNOWN_SERVER_ERROR, as on a real broker) and that
offset deltas go 0, 1, 2, … (INVALID_RECORD; UNKNOWN_SERVER_ERROR on a real broker); keys in compacted topics, and the
range of timestamps, each fault with the record's index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.compression import decompress
from spark_kafka_sink.common.model import NO_IDENTITY, NO_TIMESTAMP, TopicPartition
from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once.decode import BatchView, DecodedRecord, batch_headers, decode_batches
from spark_kafka_sink.records.batch import CRC_END, HEADER_SIZE
from spark_kafka_sink.testing.broker.state.api_error import ApiError


def only_batch(data: bytes) -> BatchView:
    """The header of the only batch that a partition of a Produce request may hold since version 3."""
    try:
        headers = batch_headers(data)
    except CorruptRecordError as cause:
        raise ApiError(ErrorCode.invalid_record, str(cause)) from cause
    if len(headers) != 1:
        raise ApiError(ErrorCode.invalid_record, "Produce requests are only allowed to contain one record batch")
    return headers[0]


class RecordRules(NamedTuple):
    """The rules of a topic for each record. ``partition``: its name in errors. ``times``: the timestamps that records
    may have; None for any.
    """

    partition: TopicPartition
    compacted: bool
    times: range | None

    def fault(self, record: DecodedRecord) -> tuple[ErrorCode, str] | None:
        if self.compacted and record.key is None:
            text = f"Compacted topic cannot accept message without key in topic partition {self.partition}"
            return ErrorCode.invalid_record, text
        if self.times is not None and record.timestamp not in self.times and record.timestamp != NO_TIMESTAMP:
            within = f"[{self.times.start}, {self.times.stop - 1}]"
            text = f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range."
            return ErrorCode.invalid_timestamp, f"{text} The timestamp should be within {within}"
        return None

    def check(self, records: Sequence[DecodedRecord]) -> None:
        """Raises ``ApiError`` with every refused record (Kafka: ``processRecordErrors``)."""
        faults = {at: fault for at, record in enumerate(records) if (fault := self.fault(record)) is not None}
        if faults:
            codes = {code for code, _ in faults.values()}
            why = f"{len(faults)} record errors in total"
            code = ErrorCode.invalid_record
            if ErrorCode.invalid_timestamp in codes:
                code, why = ErrorCode.invalid_timestamp, "invalid timestamp"
            named = [(at, text) for at, (_, text) in faults.items()]
            raise ApiError(code, f"One or more records have been rejected due to {why}", named)


def check_batch(data: bytes, header: BatchView, max_message_bytes: int, rules: RecordRules) -> None:
    """Raise ``ApiError`` for a batch that must not get into the log."""
    check_size(data, max_message_bytes)
    if crc32c(memoryview(data)[CRC_END:]) != header.crc:
        raise ApiError(ErrorCode.corrupt_message, "Record is corrupt")
    fault = _header_fault(header) or _records_fault(data, header, rules)
    if fault is not None:
        raise ApiError(ErrorCode.invalid_record, fault)


def check_size(data: bytes, max_message_bytes: int) -> None:
    """Raise ``ApiError`` for a batch over ``max.message.bytes``."""
    if len(data) > max_message_bytes:
        raise ApiError(
            ErrorCode.message_too_large,
            f"The record batch size is {len(data)} bytes, which exceeds the maximum of {max_message_bytes}.",
        )


def _header_fault(header: BatchView) -> str | None:
    if header.is_control:
        return "Clients are not allowed to write control records"
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        return f"Inconsistent batch: {header.record_count} records, last offset delta {header.last_offset_delta}"
    if header.producer_id != NO_IDENTITY.producer_id and header.base_sequence < 0:
        return f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}"
    return None


def _records_fault(data: bytes, header: BatchView, rules: RecordRules) -> str | None:
    if not header.codec_id and not rules.compacted and rules.times is None:
        return _lengths_fault(memoryview(data)[HEADER_SIZE:], header.record_count)
    _check_unpacks(data, header)
    try:
        (batch,) = decode_batches(data)
    except CorruptRecordError as cause:
        return str(cause)
    rules.check(batch.records)
    return _deltas_fault(batch.records, header) if header.codec_id else None


def _check_unpacks(data: bytes, header: BatchView) -> None:
    try:
        decompress(header.codec_id, memoryview(data)[HEADER_SIZE:])
    except CorruptRecordError as cause:
        raise ApiError(ErrorCode.unknown_server_error, str(cause)) from cause


def _deltas_fault(records: tuple[DecodedRecord, ...], header: BatchView) -> str | None:
    if any(record.offset != header.base_offset + at for at, record in enumerate(records)):
        return "An inner record inside the compressed record batch does not have incremental offsets"
    return None


def _lengths_fault(records: memoryview, count: int) -> str | None:
    """The fault of the records' lengths, found by stepping from length to length. That is far cheaper than decoding,
    and catches faults that shift the following records."""
    position, size = 0, len(records)
    for number in range(count):
        length = shift = 0
        while position < size:
            byte = records[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        position += length >> 1
        if not length or length & 1 or position > size:
            return f"Incorrect declared batch size: record {number} of {count} ends after the batch"
    return None if position == size else f"Incorrect declared batch size: bytes are left behind {count} records"
