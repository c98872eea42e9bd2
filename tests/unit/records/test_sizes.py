import pyarrow as pa
import pytest

from spark_kafka_sink.records.columns import (
    FieldLengths,
    RecordColumns,
    encode_varint,
    java_size_estimate,
    one_java_size_estimate,
    varint_size,
)
from spark_kafka_sink.records.encode import header_column


def test_the_estimate_is_the_one_java_holds_against_max_request_size():
    # AbstractRecords.estimateSizeInBytesUpperBound of kafka-clients 4.1.1 for the same two records.
    headers = pa.array([[("trace", b"abc")], []], pa.map_(pa.string(), pa.binary()))
    columns = RecordColumns(
        key=pa.array([b"key", None]), value=pa.array([bytes(2_000_000)] * 2), headers=header_column(headers)
    )
    assert java_size_estimate(FieldLengths.of(columns)).tolist() == [2_000_101, 2_000_088]
    assert java_size_estimate(FieldLengths.of(columns.slice(1, 1))).tolist() == [2_000_088]
    assert java_size_estimate(FieldLengths.of(RecordColumns(value=pa.array([bytes(2_000_000)])))).tolist() == [
        2_000_088
    ]
    section = len(header_column(headers)[0].as_py())
    assert one_java_size_estimate(section, (b"key", bytes(2_000_000))) == 2_000_101
    assert one_java_size_estimate(1, (None, bytes(2_000_000))) == 2_000_088


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
