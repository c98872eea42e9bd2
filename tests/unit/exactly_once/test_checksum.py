"""The checksum of rows: the same for the same rows in any order, another for any others."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.checksum import RowChecksum, row_hashes, slot_hashes
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


MANY = 1 << 18
NUMBERS = np.arange(MANY, dtype=np.uint64)
BITS = (NUMBERS[:, None] >> np.arange(18, dtype=np.uint64)) & np.uint64(1)
PAIRS = np.triu_indices(720, 1)
SIGNED = (np.arange(18) + 1.5) * (1 - 2 * BITS.astype(np.float64))


def fixed(rows):
    """A column with the bytes of each row of a matrix."""
    octets = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    offsets = (np.arange(len(octets) + 1) * octets.shape[1]).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(octets), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def hashes_of(partitions=None, **columns):
    return row_hashes(TopicColumn(("t",)), RecordColumns(**columns), partitions)


def one_bit_each(size):
    return np.packbits(np.eye(8 * size, dtype=np.uint8), axis=1)


NEAR = {
    "signs of doubles": lambda: hashes_of(value=fixed(SIGNED)),
    "signs of doubles, other byte order": lambda: hashes_of(value=fixed(SIGNED.astype(">f8"))),
    "signs of floats": lambda: hashes_of(value=fixed(SIGNED.astype("<f4"))),
    "flags": lambda: hashes_of(value=fixed(BITS)),
    "numbers": lambda: hashes_of(key=fixed(NUMBERS)),
    "numbers, upper bits": lambda: hashes_of(value=fixed(NUMBERS << np.uint64(46))),
    "numbers across words": lambda: hashes_of(value=pa.array([b"%021d" % each for each in NUMBERS.tolist()])),
    "key and value": lambda: hashes_of(key=fixed(NUMBERS >> np.uint64(9)), value=fixed(NUMBERS & np.uint64(511))),
    "timestamp and partition": lambda: hashes_of(
        (NUMBERS & np.uint64(511)).astype(np.int32),
        timestamps=1_700_000_000_000 + (NUMBERS >> np.uint64(9)).astype("i8"),
    ),
    "two bits of 90 bytes": lambda: hashes_of(value=fixed(np.bitwise_xor(*[one_bit_each(90)[at] for at in PAIRS]))),
    "sums of two rows": lambda: np.add(*[hashes_of(value=fixed(NUMBERS[:720]))[at] for at in PAIRS]),
}


@pytest.mark.parametrize("rows", NEAR)
def test_incident_rows_that_are_nearly_equal_had_the_same_hash(rows):
    """Of 199,757 values that differed in signs only, 256 hashes. Both halves of the hash are held to chance."""
    hashes = NEAR[rows]()
    assert len(np.unique(hashes)) == len(hashes) > MANY * 0.95
    chance = len(hashes) ** 2 / 2**33
    for half in (hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)):
        assert len(hashes) - len(np.unique(half)) < 3 * chance


@pytest.mark.parametrize("length", [1, 8, 9, 64, 512, 513, 1000])
def test_a_bit_anywhere_changes_half_of_the_hash(length):
    flipped = fixed(np.concatenate([np.zeros((1, length), np.uint8), one_bit_each(length)]))
    times = np.concatenate([[0], 1 << np.arange(63)])
    for hashes in (
        hashes_of(key=flipped), hashes_of(value=flipped), hashes_of(headers=flipped), hashes_of(timestamps=times),
        hashes_of(times[:32].astype(np.int32), timestamps=np.zeros(32)),
    ):  # fmt: skip
        assert len(np.unique(hashes)) == len(hashes)
        changed = np.unpackbits((hashes[1:] ^ hashes[0]).view(np.uint8)).mean()
        assert 0.4 < changed < 0.6


def test_a_timestamp_that_no_row_names_does_not_count():
    """A null one becomes the time of writing, which is another one in a replay."""
    value = pa.array([b"v", b"w"])
    timed, untimed = (hashes_of(value=value, timestamps=np.array([each, -1])).tolist() for each in (0, -1))
    assert untimed == hashes_of(value=value).tolist()
    assert [one == other for one, other in zip(timed, untimed, strict=True)] == [False, True]


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
    assert rows_of([(b"key", b"value"), (None, b"")]) == RowSum(2, 14495497041314630042)
