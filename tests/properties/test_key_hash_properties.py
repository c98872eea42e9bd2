import zlib

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.partitioning.key_hashes import crc32, murmur2
from tests.unit.partitioning.test_murmur2 import murmur2_of

KEYS = st.lists(
    st.one_of(st.none(), st.binary(max_size=70), st.integers(0, 5000).map(lambda length: b"\xa5" * length)), max_size=90
)


@pytest.mark.parametrize(
    ("of_column", "of_key"),
    [
        (murmur2, murmur2_of),
        (crc32, zlib.crc32),
    ],
)
@settings(deadline=None, max_examples=60)
@given(keys=KEYS, start=st.integers(0, 90), length=st.integers(0, 90))
def test_every_key_of_a_column_hashes_as_it_does_alone(of_column, of_key, keys, start, length):
    hashes = of_column(pa.array(keys, pa.binary())[start : start + length]).tolist()
    alone = keys[start : start + length]
    assert len(hashes) == len(alone)
    assert [found for found, key in zip(hashes, alone, strict=True) if key is not None] == [
        of_key(key) for key in alone if key is not None
    ]
