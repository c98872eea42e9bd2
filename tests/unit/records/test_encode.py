from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.records.arrays import RowsTooLargeError, binary_column
from spark_kafka_sink.records.batch import HEADER_SIZE, TRANSACTIONAL, BatchHeader, encode_record, stamp_header
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encode import (
    RecordsPart,
    cut_records,
    encode_records,
    header_column,
    header_section,
)

# What MemoryRecords.builder of kafka-clients 4.1.1 makes of golden_columns().
GOLDEN_BATCH = bytes.fromhex(
    "000000000000000000000102ffffffff02275b4ad50010000000040000018bcfe568050000018bcfe6eea0"
    "0000000000001267000300000011000000051c000000066b65790a76616c7565000e000502010278003800"
    "b69a0c040001060a747261636506616263086e6f6e650104c3a9000c000506010100a8020000088c01"
    + "76" * 70
    + "8c01"
    + "76" * 70
    + "00"
)
GOLDEN_TIMESTAMPS = np.array([1700000000005, 1700000000002, 1700000100000, 1700000000002, 1700000000005])

# It must outlive what was allocated in it.
COUNTING_POOL = pa.proxy_memory_pool(pa.default_memory_pool())


def golden_columns() -> RecordColumns:
    headers = [
        None,
        [],
        [{"key": "trace", "value": b"abc"}, {"key": "none", "value": None}, {"key": "é", "value": b""}],
        None,
        None,
    ]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return RecordColumns(
        key=pa.array([b"key", None, b"", None, b"v" * 70]),
        value=pa.array([b"value", b"x", None, None, b"v" * 70]),
        headers=header_column(pa.array(headers, kind)),
        timestamps=GOLDEN_TIMESTAMPS,
    )


def encoded_rows(columns: RecordColumns, **others) -> list[bytes]:
    rows = len(others.get("order", columns))
    data, starts = encode_records(columns, np.zeros(rows, np.int64), 0, **others)
    return [bytes(data[starts[row] : starts[row + 1]]) for row in range(rows)]


def key_and_value(key: bytes | None, value: bytes | None) -> bytes:
    """One record with short fields, no headers and deltas of 0."""
    fields = b"".join(b"\x01" if field is None else bytes([2 * len(field)]) + field for field in (key, value))
    return bytes([2 * (len(fields) + 4)]) + bytes(3) + fields + b"\0"


def test_each_record_alone_has_the_bytes_that_java_gives_it():
    columns = golden_columns()
    assert columns.key is not None
    assert columns.value is not None
    sections = [[], [], [(b"trace", b"abc"), (b"none", None), ("é".encode(), b"")], [], []]
    deltas = (GOLDEN_TIMESTAMPS - GOLDEN_TIMESTAMPS[0]).tolist()
    records = [
        encode_record(number, key, value, delta, header_section(headers))
        for number, (delta, key, value, headers) in enumerate(
            zip(deltas, columns.key.to_pylist(), columns.value.to_pylist(), sections, strict=True)
        )
    ]
    assert b"".join(records) == GOLDEN_BATCH[HEADER_SIZE:]


def test_a_batch_has_the_bytes_that_java_gives_it():
    columns = golden_columns()
    base = int(GOLDEN_TIMESTAMPS[0])
    data, starts = encode_records(columns, np.arange(5), GOLDEN_TIMESTAMPS - base)
    segments = [data[starts[0] : starts[2]], data[starts[2] : starts[5]]]
    header = BatchHeader(TRANSACTIONAL, 5, base, int(GOLDEN_TIMESTAMPS.max()), 4711, 3, 17)
    assert stamp_header(header, segments) + b"".join(segments) == GOLDEN_BATCH


def test_bytes_spanned_by_a_null_slot_are_not_written():
    offsets = np.array([0, 2, 5, 7], np.int32)
    buffers = [pa.py_buffer(b"\x05"), pa.py_buffer(offsets), pa.py_buffer(b"aaXXXbb")]
    spanning = pa.BinaryArray.from_buffers(pa.binary(), 3, buffers)
    expected = [key_and_value(b, b) for b in (b"aa", None, b"bb")]
    assert encoded_rows(RecordColumns(key=spanning, value=spanning)) == expected
    order = np.array([1, 2, 1])
    assert encoded_rows(RecordColumns(key=spanning, value=spanning), order=order) == [expected[row] for row in order]
    assert encoded_rows(RecordColumns(key=spanning[1:], value=spanning[1:])) == expected[1:]


def test_no_rows_are_no_bytes():
    data, starts = encode_records(RecordColumns(value=pa.array([], pa.binary())), np.zeros(0, np.int64), 0)
    assert (bytes(data), list(starts)) == (b"", [0])


@pytest.mark.parametrize("large_row", [256, 1 << 30])
def test_rows_have_the_same_bytes_next_to_a_large_one(monkeypatch, large_row):
    monkeypatch.setattr("spark_kafka_sink.records.encode._LARGE_ROW", large_row)
    golden = golden_columns()
    large = RecordColumns(*(pa.concat_arrays([each, each[:1]]) for each in (golden.key, golden.value, golden.headers)))
    values = [*golden.value.to_pylist(), bytes(1 << 20)]
    large = RecordColumns(large.key, pa.array(values, pa.binary()), large.headers)
    for order in (np.arange(5), np.array([4, 2, 0, 1, 3])):
        among_large = np.append(order, 5)
        assert encoded_rows(large, order=among_large)[:-1] == encoded_rows(golden, order=order)
    unkeyed = RecordColumns(value=large.value)
    assert encoded_rows(unkeyed)[:-1] == encoded_rows(unkeyed.slice(0, 5))


MIB = bytes(1 << 20)


def test_incident_32_bit_offsets_of_more_than_4_gib_began_again_from_0():
    zeros, views = np.zeros(4200, np.int32), np.zeros((4200, 4), np.int32)
    with pytest.raises(RowsTooLargeError):
        encode_records(RecordColumns(value=pa.array([MIB], pa.binary())), np.arange(4200), 0, zeros)
    views[:, 0] = len(MIB)
    with pytest.raises(RowsTooLargeError):
        binary_column(pa.Array.from_buffers(pa.binary_view(), 4200, [None, pa.py_buffer(views), pa.py_buffer(MIB)]))


def test_incident_run_ends_of_more_than_2_gib_ended_the_process():
    values, count = pa.array([MIB, b"x"], pa.binary()), 2049
    for each, fits in ((0, False), (1, True)):
        ends = pa.array([1, count] if each else [count, count + 1], pa.int32())
        for column in (
            pa.RunEndEncodedArray.from_arrays(ends, values),
            pa.DictionaryArray.from_arrays(pa.array([each] * count, pa.int32()), values),
        ):
            with nullcontext() if fits else pytest.raises(RowsTooLargeError):
                assert binary_column(column).to_pylist()[-1] == b"x"


def test_large_values_are_copied_once():
    columns = RecordColumns(key=pa.array([b"k"] * 8), value=pa.array([bytes(1 << 19)] * 8))
    default = pa.default_memory_pool()
    pa.set_memory_pool(COUNTING_POOL)
    try:
        data, _ = encode_records(columns, np.arange(8), 0, np.array([*reversed(range(8))]))
    finally:
        pa.set_memory_pool(default)
    assert len(data) <= COUNTING_POOL.max_memory() < len(data) + (64 << 10)


# Encoded records cut into parts: the same records, with offsets from 0 in each part.

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
