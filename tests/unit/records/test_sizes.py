import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.columns import RecordColumns, header_column
from spark_kafka_sink.records.encode import encode_records
from spark_kafka_sink.records.sizes import FieldLengths, java_size_estimate, record_size_bounds


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


def test_the_bound_is_reached_by_the_largest_deltas_and_never_passed():
    # Around the lengths at which a varint grows by a byte, for the value as for the record.
    lengths = [size + step for size in (0, 64, 8192, 1 << 20) for step in range(-12, 13) if size + step >= 0]
    columns = RecordColumns(value=pa.array([bytes(length) for length in lengths]))
    deltas = np.full(len(lengths), 8191)
    _, starts = encode_records(columns, deltas, 1 << 50)
    assert np.diff(starts).tolist() == record_size_bounds(FieldLengths.of(columns), 8191, 8).tolist()


def test_the_bound_holds_for_smaller_deltas():
    columns = RecordColumns(key=pa.array([b"k", None]), value=pa.array([None, b"v" * 60]))
    _, starts = encode_records(columns, np.array([0, 63]), 0)
    assert (np.diff(starts) <= record_size_bounds(FieldLengths.of(columns), 64, 1)).all()
