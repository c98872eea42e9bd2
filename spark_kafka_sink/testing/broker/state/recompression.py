"""``compression.type`` of a topic: batches in another codec are compressed again (Kafka: ``LogValidator``)."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.compression import CODEC_IDS, compress, decompress
from spark_kafka_sink.errors import CorruptRecordError
from spark_kafka_sink.exactly_once.decode import BatchView, batch_headers, decode_batches
from spark_kafka_sink.records.batch import HEADER_SIZE, BatchHeader, stamp_header
from spark_kafka_sink.testing.broker.state.api_error import ApiError
from spark_kafka_sink.testing.broker.state.validation import check_size

AS_SENT: Final = "producer"
_UNCOMPRESSED: Final = "uncompressed"
_CODEC_BITS: Final = 0b111


def recompressed(data: bytes, header: BatchView, wanted: str, max_message_bytes: int) -> tuple[bytes, BatchView]:
    """The batch with its records in the codec ``wanted``, a value of ``compression.type``, and its header.

    Offsets, producer and sequence stay. The largest timestamp is computed from the records, not taken from the header.
    Raises ``ApiError`` for records that cannot be read, and for a batch that has become too large.
    """
    codec = "none" if wanted == _UNCOMPRESSED else wanted
    if wanted == AS_SENT or header.codec_id == CODEC_IDS[codec]:
        return data, header
    try:
        (batch,) = decode_batches(data)
    except CorruptRecordError as cause:
        raise ApiError(ErrorCode.invalid_record, str(cause)) from cause
    payload = compress(codec, None, [decompress(header.codec_id, memoryview(data)[HEADER_SIZE:])])
    stamped = BatchHeader(
        attributes=header.attributes & ~_CODEC_BITS | CODEC_IDS[codec],
        record_count=header.record_count,
        base_timestamp=header.base_timestamp,
        max_timestamp=max(record.timestamp for record in batch.records),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    changed = stamp_header(stamped, [payload]) + payload
    check_size(changed, max_message_bytes)
    (view,) = batch_headers(changed)
    return changed, view
