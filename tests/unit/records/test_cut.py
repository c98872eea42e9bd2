"""Encoded records cut into parts: the same records, with offsets from 0 in each part."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import BatchHeader, RecordsPart, cut_records, encode_records, stamp_header

BASE = 1_700_000_000_000


def encoded(values: list[bytes | None], times: list[int]) -> bytes:
    columns = RecordColumns(key=pa.array([b"k"] * len(values)), value=pa.array(values, pa.binary()))
    return bytes(encode_records(columns, np.arange(len(values)), np.array(times, np.int64)).data)


def decoded(part: RecordsPart) -> list[tuple[int, int, bytes | None]]:
    header = stamp_header(BatchHeader(0, part.rows, BASE, BASE + part.latest), [part.records])
    (batch,) = decode_batches(header + part.records)
    assert batch.header.max_timestamp == max(record.timestamp for record in batch.records)
    return [(record.offset, record.timestamp - BASE, record.value) for record in batch.records]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.none() | st.binary(max_size=200), st.integers(-(10**9), 10**9)), min_size=1, max_size=300
    ),
    most=st.integers(1, 5_000),
)
def test_the_parts_hold_the_same_records_with_offsets_of_their_own(rows, most):
    values, times = [value for value, _ in rows], [time for _, time in rows]
    parts = cut_records(encoded(values, times), most)
    found = [decoded(part) for part in parts]
    assert [(time, value) for part in found for _, time, value in part] == [(time, value) for value, time in rows]
    assert all([offset for offset, _, _ in part] == list(range(len(part))) for part in found)
    assert all(len(part.records) <= most or part.rows == 1 for part in parts)


def test_parts_are_as_full_as_they_may_be():
    records = encoded([b"x" * 100] * 20_000, [0] * 20_000)
    parts = cut_records(records, 100_000)
    assert len(parts) == len(records) // 100_000 + 1
