"""The checksum of rows: the same for the same rows in any order, another for any others."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.exactly_once.checksum import row_hashes, row_sum, slot_hashes
from spark_kafka_sink.exactly_once.values import RowChecksum
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn

FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=500, max_size=600))
ROWS = st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=20)


def rows_of(*batches, topic="t", partitions=None):
    """Each batch a list of (key, value)."""
    columns = [RecordColumns(*(pa.array(each, pa.binary()) for each in zip(*rows, strict=True))) for rows in batches]
    return sum((row_sum(TopicColumn((topic,)), each, partitions) for each in columns), RowChecksum())


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


def test_rows_of_several_topics_together_are_those_of_each_topic():
    keys, values = pa.array([b"a", b"b", b"c"]), pa.array([b"1", b"2", b"3"])
    topics = TopicColumn(("t", "u"), np.array([0, 1, 0], np.int32))
    together = row_sum(topics, RecordColumns(keys, values))
    assert together == rows_of([(b"a", b"1"), (b"c", b"3")]) + rows_of([(b"b", b"2")], topic="u")
    assert rows_of([(b"b", b"2")], topic="u") != rows_of([(b"b", b"2")])


MANY = 1 << 18
NUMBERS = np.arange(MANY, dtype=np.uint64)
PAIRS = np.triu_indices(720, 1)


def bits():
    return (NUMBERS[:, None] >> np.arange(18, dtype=np.uint64)) & np.uint64(1)


def signed():
    return (np.arange(18) + 1.5) * (1 - 2 * bits().astype(np.float64))


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
    "signs of doubles": lambda: hashes_of(value=fixed(signed())),
    "signs of doubles, other byte order": lambda: hashes_of(value=fixed(signed().astype(">f8"))),
    "signs of floats": lambda: hashes_of(value=fixed(signed().astype("<f4"))),
    "flags": lambda: hashes_of(value=fixed(bits())),
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


@pytest.mark.parametrize("other", [0, 1, 2**31 - 1])
def test_what_no_row_names_does_not_count(other):
    """A null timestamp becomes the time of writing, which is another one in a replay. A batch whose partitions are all
    null has no column of them."""
    value, none_or_other = pa.array([b"v", b"w"]), np.array([-1, other], np.int32)
    plain = hashes_of(value=value)
    for hashes in (hashes_of(none_or_other, value=value), hashes_of(value=value, timestamps=none_or_other)):
        assert (hashes == plain).tolist() == [True, False]


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
    assert rows_of([(b"key", b"value"), (None, b"")]) == RowChecksum(2, 14495497041314630042)
