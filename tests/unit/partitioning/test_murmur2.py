import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.producer.partitioning.key_hashes import murmur2

MIB = bytes((i * 31 + 7) & 0xFF for i in range(1 << 20))


def murmur2_of(key):
    """The hash of one key."""
    return murmur2.of_long(np.frombuffer(key, np.uint8))


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


def test_each_key_alone_hashes_as_in_java():
    keys = pa.array(JAVA, pa.binary())
    assert [int(murmur2(keys[row : row + 1])[0].astype(np.int32)) for row in range(len(keys))] == list(JAVA.values())


def test_more_very_long_keys_than_are_hashed_one_by_one():
    keys = [bytes([row]) * (4 * 0xFFFF + 5 + 8 * (row % 3)) for row in range(66)]
    hashes = murmur2(pa.array(keys))
    assert [hashes[row] for row in (0, 1, 65)] == [murmur2_of(keys[row]) for row in (0, 1, 65)]
