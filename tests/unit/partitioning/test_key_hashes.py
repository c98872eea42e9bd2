"""The hashes of keys: those of Kafka's clients, and of a column those of its keys alone."""

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.kafka_partitioners import crc32, murmur2
from spark_kafka_sink.producer.partitioner import NOT_GIVEN
from tests.support.waiting import cpu_ratio

MIB = bytes((i * 31 + 7) & 0xFF for i in range(1 << 20))


def murmur2_of(key):
    """The hash of one key."""
    return murmur2.of_long(np.frombuffer(key, np.uint8))


HASHES = {"murmur2": (murmur2, murmur2_of), "crc32": (crc32, zlib.crc32)}
each_hash = pytest.mark.parametrize(("of_column", "of_key"), HASHES.values(), ids=HASHES)

# Utils.murmur2 of kafka-clients 4.1.1.
JAVA = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"N14228": -1499626080,
    "日本".encode(): -700811021,
    b"21": -973932308,
    b"foobar": -790332482,
    b"\xff" * 7: -71293549,
    bytes.fromhex("e1bbe7"): -983584298,
    bytes.fromhex("bd6743e7dc978573"): 496582918,
    bytes.fromhex("20bebfb01100b276545718c30f406c"): -1111216034,
    bytes.fromhex("83b89670d6d9f9bf52d83deedc0bf66205835ccc16ad682d8c478a26f450279849599b56"): -1772032426,
    bytes.fromhex(
        "8c082af3d5d78b98bcc00bd26fae51303f23fba277b4e0602cbf7e5e9ba8ec22daa9395cbb3cb06feaf2456f0a5717a6b5bb127579092bb2831b"
        "0279bb5070f331"
    ): -590710422,
    MIB: -1041851485,
    MIB[:-3]: 250249899,
}


@pytest.mark.parametrize(("key", "hashed"), JAVA.items(), ids=lambda given: f"{given!r:.20}")
def test_one_key_hashes_as_in_java(key, hashed):
    assert np.uint32(murmur2_of(key)).astype(np.int32) == hashed


def test_a_column_of_keys_hashes_as_in_java():
    hashes = murmur2(pa.array(JAVA, pa.binary()))
    assert hashes.dtype == np.uint32
    assert hashes.astype(np.int32).tolist() == list(JAVA.values())


KEYS = st.lists(
    st.one_of(st.none(), st.binary(max_size=70), st.integers(0, 5000).map(lambda length: b"\xa5" * length)), max_size=90
)


@each_hash
@settings(deadline=None, max_examples=60)
@given(keys=KEYS, start=st.integers(0, 90), length=st.integers(0, 90))
def test_every_key_of_a_column_hashes_as_it_does_alone(of_column, of_key, keys, start, length):
    hashes = of_column(pa.array(keys, pa.binary())[start : start + length]).tolist()
    alone = keys[start : start + length]
    assert len(hashes) == len(alone)
    assert [found for found, key in zip(hashes, alone, strict=True) if key is not None] == [
        of_key(key) for key in alone if key is not None
    ]


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
