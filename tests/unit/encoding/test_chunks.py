"""Chunked arrays: small chunks are encoded together, and the rows are those of the chunks one after the other."""

import json

import pyarrow as pa
import pytest

from spark_kafka_sink.schemas.encoding import columns as slices
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.encoder import UnencodableRowsError
from tests.unit.encoding.avro_referee import record, struct

SCHEMA = json.dumps(record(text=["null", "string"], number="long"))


def rows(numbers, kind=None):
    return struct(text=pa.array([f"text {number}" for number in numbers], kind), number=pa.array(numbers, pa.int64()))


@pytest.fixture
def writers(monkeypatch):
    """The rows of each slice that was encoded."""
    counted = []

    class Counted(slices.RowWriter):
        __slots__ = ()

        def __init__(self, rows):
            counted.append(rows)
            super().__init__(rows)

    monkeypatch.setattr(slices, "RowWriter", Counted)
    return counted


def each_alone(encoder, chunks):
    return [value for chunk in chunks for value in encoder.encode(chunk).to_pylist()]


def test_small_chunks_are_encoded_together(writers):
    chunks = [rows(range(start, start + 3)) for start in range(0, 300, 3)]
    encoder = plan_avro(SCHEMA, chunks[0].type)
    array = pa.chunked_array([chunks[0][:0], *chunks, chunks[0][:0]])
    encoded = encoder.encode(array)
    assert writers == [300]
    assert encoded.to_pylist() == each_alone(encoder, chunks)


def test_run_ends_are_joined_or_encoded_chunk_by_chunk():
    runs = [pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, number])) for number in (1, 2)]
    chunks = [struct(number=each) for each in runs]
    encoder = plan_avro(json.dumps(record(number="long")), chunks[0].type)
    assert encoder.encode(pa.chunked_array(chunks)).to_pylist() == [
        b"\x0e",
        b"\x0e",
        b"\x02",
        b"\x0e",
        b"\x0e",
        b"\x04",
    ]


def test_faulty_rows_are_numbered_through():
    chunks = [struct(text=pa.array(["a"]), number=pa.array([number], pa.int64())) for number in (1, None, 3, None)]
    encoder = plan_avro(SCHEMA, chunks[0].type)
    with pytest.raises(UnencodableRowsError) as caught:
        encoder.encode(pa.chunked_array(chunks))
    assert [fault.row for fault in caught.value.faults] == [1, 3]


def test_incident_the_bytes_before_each_slice_of_a_fixed_column_counted_again_towards_2_gib(monkeypatch):
    monkeypatch.setattr(slices, "_SLICE_ROWS", 10)
    monkeypatch.setattr(slices, "_MAX_BYTES", 1000)
    values = pa.array([b"%010d" % number for number in range(50)], pa.binary())
    schema = json.dumps({"type": "fixed", "name": "F", "size": 10})
    assert plan_avro(schema, values.type).encode(values).to_pylist() == values.to_pylist()
