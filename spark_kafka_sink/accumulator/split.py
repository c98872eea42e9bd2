"""Halving a batch that a broker found too large (Kafka: ``ProducerBatch.split``). Pure, and seldom needed.

The halves are encoded anew: offset deltas from 0, base and latest timestamp their own. A broker takes an uncompressed
batch with any deltas and would serve wrong offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_kafka_sink.accumulator.batch import Buffer, ProducerBatch
from spark_kafka_sink.records.arrow import bytes_column
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import CODEC_NAMES, compress
from spark_kafka_sink.records.decode import DecodedRecord, decode_batches
from spark_kafka_sink.records.encode import encode_records, header_section


def split_in_two(batch: ProducerBatch, level: int | None) -> tuple[ProducerBatch, ProducerBatch]:
    """Two sealed batches in place of a stamped one of at least two records; ``level`` is that of its codec."""
    assert batch.header is not None
    assert batch.payload is not None
    (decoded,) = decode_batches(b"".join((batch.header, *batch.payload)))
    records = decoded.records
    middle = len(records) // 2
    return _part(batch, records, 0, middle, level), _part(batch, records, middle, len(records), level)


def _part(
    whole: ProducerBatch, all_records: Sequence[DecodedRecord], start: int, end: int, level: int | None
) -> ProducerBatch:
    records = all_records[start:end]
    timestamps = np.array([record.timestamp for record in records], np.int64)
    base = int(timestamps[0])
    columns = RecordColumns(
        bytes_column([record.key for record in records]),
        bytes_column([record.value for record in records]),
        bytes_column([header_section(record.headers) for record in records]),
    )
    encoded = encode_records(columns, np.arange(len(records)), timestamps - base)
    payload: Sequence[Buffer] = (encoded.data,)
    if whole.codec:
        payload = (compress(CODEC_NAMES[whole.codec], level, payload),)
    part = ProducerBatch(whole.partition, whole.created, whole.limit, base)
    part.count = len(records)
    part.max_timestamp = int(timestamps.max())
    part.shares = [share for each in whole.shares if (share := each.within(start, end)) is not None]
    part.seal(whole.codec, payload, len(encoded.data))
    return part
