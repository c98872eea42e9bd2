"""The checksum of rows: the same for the same rows in any order, another for any others."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.checksum import RowChecksum, slot_hashes
from spark_kafka_sink.exactly_once.values import RowSum
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.encode import header_column

FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=500, max_size=600))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=20)


def rows_of(*batches, topic="t", partitions=None):
    """Each batch a list of (key, value)."""
    checksum = RowChecksum()
    for batch in batches:
        keys, values = (pa.array(column, pa.binary()) for column in zip(*batch, strict=True))
        checksum.add(TopicColumn((topic,)), RecordColumns(keys, values), partitions)
    return checksum.rows


@settings(deadline=None)
@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 20))
def test_order_and_batches_make_no_difference(rows, random, cut):
    shuffled = random.sample(rows, len(rows))
    parts = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert rows_of(*parts) == rows_of(rows)


@settings(deadline=None)
@given(ROWS, st.data())
def test_any_changed_row_makes_a_difference(rows, data):
    place = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(st.tuples(FIELDS, FIELDS).filter(lambda row: row != rows[place]))
    assert rows_of([*rows[:place], other, *rows[place + 1 :]]) != rows_of(rows)


@pytest.mark.parametrize(
    "other",
    [
        [(b"b", b"a")],
        [(b"a", None)],
        [(b"a", b"")],
        [(b"a", b"b\0")],
        [(b"a", b"b"), (None, None)],
        [(b"a", b"b"), (b"a", b"b")],
    ],
)
def test_near_rows_differ(other):
    assert rows_of([(b"a", b"b")]) != rows_of(other)


def test_rows_of_several_topics_together_are_those_of_each_topic():
    keys, values = pa.array([b"a", b"b", b"c"]), pa.array([b"1", b"2", b"3"])
    together = RowChecksum()
    together.add(TopicColumn(("t", "u"), np.array([0, 1, 0], np.int32)), RecordColumns(keys, values), None)
    assert together.rows == rows_of([(b"a", b"1"), (b"c", b"3")]) + rows_of([(b"b", b"2")], topic="u")


def test_topic_and_partition_belong_to_a_row():
    row = [(b"a", b"b")]
    there = np.array([3], np.int32)
    different = {rows_of(row), rows_of(row, topic="u"), rows_of(row, partitions=there)}
    assert len(different) == 3


def test_headers_belong_to_a_row():
    def with_headers(*headers):
        checksum = RowChecksum()
        column = header_column(pa.array([[{"key": "h", "value": each} for each in headers]], HEADERS))
        checksum.add(TopicColumn(("t",)), RecordColumns(value=pa.array([b"v"]), headers=column), None)
        return checksum.rows

    assert len({with_headers(), with_headers(b"1"), with_headers(b"2"), with_headers(b"1", b"2")}) == 4


def test_incident_null_partitions_counted_differently_where_a_batch_had_no_other():
    rows = [(b"k", b"1"), (b"k", b"2")]
    together = RowChecksum()
    columns = RecordColumns(*(pa.array(column, pa.binary()) for column in zip(*rows, strict=True)))
    together.add(TopicColumn(("t",)), columns, np.array([-1, 3], np.int32))
    apart = rows_of(rows[:1]) + rows_of(rows[1:], partitions=np.array([3], np.int32))
    assert together.rows == apart


@pytest.mark.parametrize("partition", [0, 1, 2**31 - 1])
def test_a_null_partition_is_none_of_the_others(partition):
    assert rows_of([(b"k", b"v")], partitions=np.array([partition], np.int32)) != rows_of([(b"k", b"v")])


@pytest.mark.parametrize("length", [7, 8, 9, 64, 512, 513, 5000])
def test_every_byte_counts(length):
    plain = bytes(length)
    changed = [plain[:i] + b"\1" + plain[i + 1 :] for i in range(0, length, max(length // 50, 1))]
    hashes = slot_hashes(pa.array([plain, *changed, plain], pa.binary())).tolist()
    assert hashes[0] == hashes[-1]
    assert len(set(hashes)) == len(changed) + 1


def test_a_slot_hashes_alike_among_others_of_any_length():
    mixed = [b"a" * length for length in (0, 3, 15, 70, 200, 500, 700, 100_000)]
    together = slot_hashes(pa.array([*mixed, None], pa.binary())).tolist()
    assert together == [int(slot_hashes(pa.array([each], pa.binary()))[0]) for each in [*mixed, None]]
    assert slot_hashes(pa.array([b"x", *mixed], pa.binary())[1:]).tolist() == together[:-1]


def test_what_stands_under_a_null_does_not_count():
    values = pa.array([b"abc", b"xyz"], pa.binary())
    masked = pa.BinaryArray.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\1"), *values.buffers()[1:]])
    assert slot_hashes(masked).tolist() == slot_hashes(pa.array([b"abc", None], pa.binary())).tolist()


def test_the_checksum_is_part_of_the_ledgers_format():
    assert rows_of([(b"key", b"value"), (None, b"")]) == RowSum(2, 11200329240206349409)
