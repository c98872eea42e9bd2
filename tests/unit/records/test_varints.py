import numpy as np
import pytest

from spark_kafka_sink.records.varints import (
    TABLE,
    TABLE_SIZE,
    encode_varint,
    encode_zigzagged,
    varint_size,
    varint_sizes,
    zigzag,
)

# From Java's ByteUtils.writeVarlong.
KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    (1 << 20) - 1: "feff7f",
    1 << 20: "80808001",
    (1 << 31) - 1: "feffffff0f",
    -(1 << 31): "ffffffff0f",
    (1 << 63) - 1: "feffffffffffffffff01",
    -(1 << 63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("value", "encoded"), KNOWN.items())
def test_one_value_is_encoded_as_java_does(value, encoded):
    assert encode_varint(value).hex() == encoded
    assert varint_size(value) == len(encoded) // 2


def test_a_column_is_encoded_and_measured_as_java_does():
    values = np.array(list(KNOWN), np.int64)
    assert [slot.hex() for slot in encode_zigzagged(zigzag(values)).to_pylist()] == list(KNOWN.values())
    assert varint_sizes(values).tolist() == [len(encoded) // 2 for encoded in KNOWN.values()]


def test_the_table_holds_the_varint_of_its_slot():
    values = [0, -1, 1, 63, -64, 64, 8191, 8192, TABLE_SIZE // 2 - 1, -TABLE_SIZE // 2]
    slots = zigzag(np.array(values, np.int64)).tolist()
    assert [TABLE[slot].as_py() for slot in slots] == [encode_varint(value) for value in values]
    assert max(slots) == len(TABLE) - 1


def test_an_empty_column_is_fine():
    nothing = np.zeros(0, np.int64)
    assert varint_sizes(nothing).tolist() == []
    assert encode_zigzagged(zigzag(nothing)).to_pylist() == []
