"""Arrow batches as Spark hands them over → columns of records."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.spark import row_reader
from spark_kafka_sink.spark.encode_raw import RawEncoder
from spark_kafka_sink.spark.row_reader import RowReader
from spark_kafka_sink.spark.schema import RowLayout

NOW_MS = 1_700_000_000_000


def task_rows(batch, layout, topic, first_row, now_ms):
    for read_rows in RowReader(layout, topic)(batch, first_row):
        for rows in RawEncoder()(read_rows):
            yield replace(rows, columns=rows.columns.with_timestamps(now_ms))


def read(batch, layout, topic=None, first_row=0):
    """Each part as (topics, values, keys, partitions, number of the first row)."""
    return [
        (
            topics_of(rows),
            rows.columns.value.to_pylist(),
            None if rows.columns.key is None else rows.columns.key.to_pylist(),
            None if rows.partitions is None else rows.partitions.tolist(),
            rows.first_row,
        )
        for rows in task_rows(batch, layout, topic, first_row, NOW_MS)
    ]


def topics_of(rows):
    """Of each row."""
    return topics_of_column(rows.topics, len(rows.columns))


def topics_of_column(topics, rows):
    names, codes = topics.names, topics.codes
    return [*names] * rows if codes is None else [names[code] for code in codes.tolist()]


def batch(**columns):
    return pa.record_batch(
        {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    )


def test_all_rows_are_the_options_topic():
    rows = batch(value=["a", None], topic=["x", None])
    assert read(rows, RowLayout(value=0), "t", 10) == [(["t", "t"], [b"a", None], None, None, 10)]


def test_rows_of_several_topics_stay_together_in_their_order():
    rows = batch(value=list("abcd"), key=list("1234"), topic=["x", "y", "x", "z"])
    assert read(rows, RowLayout(value=0, key=1, topic=2), first_row=100) == [
        (["x", "y", "x", "z"], [b"a", b"b", b"c", b"d"], [b"1", b"2", b"3", b"4"], None, 100)
    ]


@pytest.mark.parametrize(
    "topics",
    [
        ["t"],
        ["ü-topic"] * 5,
        ["ab", "ab", "ba"],
        ["ab", "ba", "ab"],
        ["a", "aa", "a"],
        ["aa", "aaaa"],
        ["x" * 249] * 3,
        ["t", "", "t"],
    ],
    ids=str,
)
def test_one_topic_is_told_from_several_that_look_like_it(topics):
    column = pa.array(["other", *topics, "other"]).slice(1, len(topics))
    found = row_reader.topic_column(column)
    assert list(found.names) == list(dict.fromkeys(topics))
    assert topics_of_column(found, len(topics)) == topics


@pytest.mark.parametrize("beneath", [b"", b"tt", b"uu"], ids=str)
def test_rows_without_a_topic_get_any_other_rows_whatever_bytes_are_under_null(beneath):
    texts = [b"tt", beneath, b"tt"]
    offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    buffers = [pa.py_buffer(b"\5"), pa.py_buffer(offsets), pa.py_buffer(b"".join(texts))]
    column = pa.StringArray.from_buffers(3, buffers[1], buffers[2], buffers[0])
    found = row_reader.topic_column(column, np.array([False, True, False]))
    assert topics_of_column(found, 3) == ["tt"] * 3


def test_rows_without_a_topic_have_an_empty_one_if_no_row_has_a_topic():
    found = row_reader.topic_column(pa.nulls(2, pa.string()), np.array([True, True]))
    assert topics_of_column(found, 2) == ["", ""]


def test_partitions_go_with_their_rows_and_null_is_minus_1():
    rows = batch(value=list("abc"), topic=["x", "y", "x"], partition=pa.array([7, None, 0], pa.int32()))
    assert read(rows, RowLayout(value=0, topic=1, partition=2)) == [
        (["x", "y", "x"], [b"a", b"b", b"c"], None, [7, -1, 0], 0)
    ]


def test_a_partition_column_without_a_value_is_no_choice():
    rows = batch(value=["a"], partition=pa.array([None], pa.int32()))
    assert read(rows, RowLayout(value=0, partition=1), "t") == [(["t"], [b"a"], None, None, 0)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_topics_and_values_come_in_every_flavour_of_string(kind):
    rows = batch(value=pa.array(["a", "b"], kind), topic=pa.array(["x", "y"], kind))
    assert read(rows, RowLayout(value=0, topic=1)) == [(["x", "y"], [b"a", b"b"], None, None, 0)]


def test_more_topics_than_16_bits_count_stay_apart():
    names = [f"t{number}" for number in range(70_000)]
    ((topics, *_),) = read(batch(value=names, topic=names), RowLayout(value=0, topic=1))
    assert topics == names


def test_a_sliced_batch_is_read_from_its_slice():
    rows = batch(value=list("abcd"), topic=["x", "y", "y", "x"]).slice(1, 2)
    assert read(rows, RowLayout(value=0, topic=1)) == [(["y", "y"], [b"b", b"c"], None, None, 0)]


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            {"topic": ["x", None, "x"]},
            "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a "
            "default topic. But that option sends all rows to one topic. `where topic is null` finds the rows without "
            "a topic: give them a topic, or set deadLetterTopic, so that they become dead letters. (row 8 of the "
            "task, counted from 0)",
        ),
        (
            {"partition": pa.array([0, None, -1], pa.int32())},
            "Invalid partition: -1. Partition number should always be non-negative or null. "
            "(row 9 of the task, counted from 0)",
        ),
        (
            {"headers": pa.array([None, [{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}], None], HEADERS)},
            "Invalid null header key found in headers (row 8 of the task, counted from 0)",
        ),
        (
            {"timestamp": [5, -2, 0]},
            "Invalid timestamp: -2. Timestamp should always be non-negative or null. "
            "(row 8 of the task, counted from 0)",
        ),
    ],
    ids=["null topic", "negative partition", "null header key", "before 1970"],
)
def test_a_row_that_cannot_be_a_record_is_refused_with_its_number(columns, text):
    (name,) = columns
    with pytest.raises(InvalidRecordError) as raised:
        read(batch(value=list("abc"), **columns), RowLayout(value=0, **{name: 1}), None if name == "topic" else "t", 7)
    assert str(raised.value) == text


def test_headers_go_with_their_rows():
    headers = pa.array([[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}]], HEADERS)
    rows = batch(value=list("abc"), topic=["x", "y", "x"], headers=headers)
    (read_rows,) = task_rows(rows, RowLayout(value=0, topic=1, headers=2), None, 0, NOW_MS)
    assert read_rows.columns.headers.to_pylist() == [b"\x02\x02a\x021", b"\x00", b"\x02\x02b\x01"]


def test_a_batch_too_large_for_32_bit_offsets_is_cut(monkeypatch):
    monkeypatch.setattr(row_reader, "_MAX_SLICE_BYTES", 40)
    rows = batch(value=pa.array(["a" * 20, "b" * 20, "c" * 20], pa.large_string()))
    groups = read(rows, RowLayout(value=0), "t", 1)
    assert [(values, first) for _, values, _, _, first in groups] == [
        ([b"a" * 20], 1), ([b"b" * 20], 2), ([b"c" * 20], 3),
    ]  # fmt: skip
