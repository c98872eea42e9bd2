"""Values on their short way: the bytes must be those that the columns' encoder makes."""

from __future__ import annotations

import numpy as np
import pytest

from spark_kafka_sink.records.columns import RecordColumns, bytes_column
from spark_kafka_sink.records.encode import encode_records
from spark_kafka_sink.records.encode_values import encode_values


def both(values: list[bytes], first: int, timestamp_delta: int) -> tuple[bytes, bytes]:
    columns = RecordColumns(value=bytes_column(values))
    data, _ = encode_records(columns, np.arange(first, first + len(values)), timestamp_delta)
    return encode_values(values, list(map(len, values)), first, timestamp_delta), bytes(data)


@pytest.mark.parametrize("first", [0, 1, 62, 63, 64, 8190, 8191, 8192, 65_500, 65_535, 65_536, 1_048_570])
@pytest.mark.parametrize("rows", [1, 2, 3, 130])
def test_offset_deltas_of_every_size(first, rows):
    ours, theirs = both([b"%d" % row for row in range(rows)], first, 0)
    assert ours == theirs


@pytest.mark.parametrize("timestamp_delta", [0, 1, -1, 63, 64, -65, 8192, 1 << 40, -(1 << 62)])
def test_timestamp_deltas_of_every_size(timestamp_delta):
    ours, theirs = both([b"a", b"", b"ccc" * 100], 60, timestamp_delta)
    assert ours == theirs


def test_lengths_around_every_size_of_a_varint():
    lengths = [0, 1, 50, 55, 56, 57, 58, 63, 64, 65, 127, 128, 8_180, 8_181, 8_182, 8_191, 8_192, 8_193, 1_048_576]
    ours, theirs = both([b"x" * length for length in lengths], 0, 0)
    assert ours == theirs


def test_a_batch_from_its_first_record_beyond_the_table_of_offsets():
    ours, theirs = both([b"x"] * 70_000, 0, 5)
    assert ours == theirs


@pytest.mark.parametrize("timestamp_delta", [0, 7, 700])
def test_values_of_one_length_across_offset_deltas_of_three_sizes(timestamp_delta):
    ours, theirs = both([b"x" * 100] * 10_000, 3, timestamp_delta)
    assert ours == theirs


def test_random_lengths():
    lengths = np.random.default_rng(1).integers(0, 300, 5_000).tolist()
    ours, theirs = both([b"y" * length for length in lengths], 3, 0)
    assert ours == theirs
