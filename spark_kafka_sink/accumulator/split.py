"""Halving a batch that a broker found too large (Kafka: ``ProducerBatch.split``). Pure, and seldom needed.

The halves are encoded anew: offset deltas from 0, base and latest timestamp their own. A broker takes an uncompressed
batch with any deltas and would serve wrong offsets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_kafka_sink.accumulator.batch import BatchCompletion, Buffer, SealedBatch, StampedBatch
from spark_kafka_sink.records.arrow import bytes_column
from spark_kafka_sink.records.batch import HEADER_SIZE
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.compression import CODEC_NAMES, compress
from spark_kafka_sink.records.decode import DecodedRecord, decode_batches
from spark_kafka_sink.records.encode import encode_records, header_section


def split_in_two(batch: StampedBatch, level: int | None) -> list[SealedBatch]:
    """Two batches in place of one of at least two records; ``level`` is that of its codec."""
    (decoded,) = decode_batches(b"".join((batch.header, *batch.sealed.payload)))
    records = decoded.records
    middle = len(records) // 2
    halves = (records[:middle], records[middle:])
    completions = batch.completion.split_at(middle, len(records))
    return [
        _sealed(batch.sealed, half, completion, level) for half, completion in zip(halves, completions, strict=True)
    ]


def _sealed(
    whole: SealedBatch, records: Sequence[DecodedRecord], completion: BatchCompletion, level: int | None
) -> SealedBatch:
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
    return SealedBatch(
        completion=completion,
        created=whole.created,
        count=len(records),
        base_timestamp=base,
        max_timestamp=int(timestamps.max()),
        codec=whole.codec,
        payload=payload,
        size=HEADER_SIZE + len(payload[0]),
        plain_size=HEADER_SIZE + len(encoded.data),
    )
