import zlib

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.partitioning.key_hashes import crc32, murmur2
from spark_kafka_sink.producer.partitioning.partitioner import NOT_GIVEN
from tests.support.waiting import cpu_ratio
from tests.unit.partitioning.test_murmur2 import MIB, murmur2_of

HASHES = {
    "murmur2": (murmur2, murmur2_of),
    "crc32": (crc32, zlib.crc32),
}
each_hash = pytest.mark.parametrize(("of_column", "of_key"), HASHES.values(), ids=HASHES)


@each_hash
def test_keys_of_every_length_hash_as_each_alone(of_column, of_key):
    keys = [MIB[length : 2 * length] for length in range(80)] + [b"\xff" * 7, b"\0", b"\0\0\0\0", "日本".encode()]
    assert of_column(pa.array(keys, pa.binary())).tolist() == [of_key(key) for key in keys]


@each_hash
@pytest.mark.parametrize("long_keys", [1, 63, 64, 65, 200])
def test_many_long_keys_among_short_ones_hash_like_each_alone(of_column, of_key, long_keys):
    keys = [b"s" * (row % 70) for row in range(300)] + [MIB[row : 300 + 7 * row] for row in range(long_keys)]
    assert of_column(pa.array(keys)).tolist() == [of_key(key) for key in keys]


@each_hash
def test_one_key_of_a_mebibyte_does_not_slow_ten_thousand_short_ones(of_column, of_key):
    keys = pa.array([b"%036d" % row for row in range(10_000)] + [MIB])
    # Word by word over all keys, the column would take 29,000 times as long as its short keys: as many times the words.
    assert cpu_ratio(lambda: of_column(keys), lambda: of_column(keys[:-1])) < 1_000
    assert of_column(keys)[-1] == of_key(MIB)


def test_crc32_gives_empty_keys_no_partition():
    keys = pa.array([b"", b"21", None, b"foobar"])
    partitions = crc32.partitions(keys, 100)
    assert partitions.dtype == np.int32
    assert partitions[[0, 1, 3]].tolist() == [NOT_GIVEN, zlib.crc32(b"21") % 100, zlib.crc32(b"foobar") % 100]
