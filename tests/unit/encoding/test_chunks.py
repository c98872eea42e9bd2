"""Columns in slices: small chunks are encoded together, and faulty rows are null if there is a list for the faults."""

import datetime as dt
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_kafka_sink.schemas.encoding import columns as slices
from spark_kafka_sink.schemas.encoding import encoder as encoder_module
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.encoder import RowsTooLargeError, UnencodableRowsError
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from tests.unit.encoding.avro_referee import record, struct
from tests.unit.encoding.protos import proto3

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
    values = pa.array([b"%010d" % number for number in range(50)], pa.binary())
    schema = json.dumps({"type": "fixed", "name": "F", "size": 10})
    assert plan_avro(schema, values.type).encode(values, most=1000).to_pylist() == values.to_pylist()


_EMPTY = pa.StructArray.from_buffers(pa.struct([]), 3 * 60, [None])
_GROWING = {
    "a default": (record(number="long", text="string"), {"number": pa.array(range(60))}),
    "defaults of items": (
        record(items={"type": "array", "items": {**record(text="string"), "name": "Item"}}),
        {"items": pa.ListArray.from_arrays(pa.array(range(0, 3 * 61, 3), pa.int32()), _EMPTY)},
    ),
    "a run": (record(a="long", b="long", c="long", d="long"), {name: pa.array([1 << 62] * 60) for name in "abcd"}),
}


def with_defaults(schema):
    """Each field of type string gets a long default."""
    for field in schema.get("fields", ()):
        if field["type"] == "string":
            field["default"] = "x" * 100
        elif isinstance(field["type"], dict):
            with_defaults(field["type"]["items"])
    return json.dumps(schema)


@pytest.mark.parametrize("case", _GROWING)
def test_incident_rows_that_a_schema_makes_larger_became_more_than_offsets_count(case, monkeypatch, writers):
    """Beyond 4 GiB, topics got other bytes, or the worker crashed."""
    schema, columns = _GROWING[case]
    array = struct(**columns)
    encoder = plan_avro(with_defaults(schema), array.type)
    expected = encoder.encode(array).to_pylist()
    size = len(expected[0])
    monkeypatch.setattr(encoder_module, "LARGEST_SLICE", 20 * size)
    writers.clear()
    assert encoder.encode(array).to_pylist() == expected
    assert [each for each in writers if each <= 20] == [15] * 4
    with pytest.raises(RowsTooLargeError):
        encoder.encode(array, most=20 * size)
    for limit in ("LARGEST_SLICE", "MAX_BYTES"):
        monkeypatch.setattr(encoder_module, limit, size - 1)
    with pytest.raises(UnencodableRowsError, match="the encoded row would take more than 2 GiB") as caught:
        encoder.encode(array)
    assert [fault.row for fault in caught.value.faults] == list(range(60))


# With a list for the faults, a faulty row is null, and the others are encoded as without it.

AVRO = {
    "null": ("string", pa.string(), "abc", None),
    "float": ("float", pa.int64(), 7, (1 << 40) + 1),
    "text": ("string", pa.binary(), b"abc", b"\xff\xfe"),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", "none of them"),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), b"abc", b"a"),
    "uuid": ({"type": "string", "logicalType": "uuid"}, pa.string(), str(uuid.UUID(int=1)), "no uuid"),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
        pa.decimal128(20, 1), Decimal("1.5"), Decimal("123456.7"),
    ),
    "decimal fixed": (
        {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 3, "scale": 1},
        pa.decimal128(38, 1), Decimal("-1.5"), Decimal("123456789012345678901234.7"),
    ),
    "millis": (
        {"type": "int", "logicalType": "time-millis"}, pa.time64("us"),
        dt.time(1), dt.time(1, 0, 0, 1),
    ),
    "items": ({"type": "array", "items": "string"}, pa.list_(pa.string()), ["a", "b"], ["a", None]),
    "map": ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 1), ("a", 2)]),
    "uuids": (
        {"type": "array", "items": {"type": "string", "logicalType": "uuid"}},
        pa.list_(pa.string()), [str(uuid.UUID(int=3))] * 2, ["x", str(uuid.UUID(int=4))],
    ),
}  # fmt: skip

PROTOBUF = {
    "uint32": ("uint32 f = 2;", pa.int32(), 7, -1),
    "fixed32": ("fixed32 f = 2;", pa.int32(), 7, -1),
    "text": ("string f = 2;", pa.binary(), b"abc", b"\xff"),
    "enum": ("E f = 2; enum E { A = 0; B = 1; }", pa.string(), "B", "none"),
    "timestamp": (
        "google.protobuf.Timestamp f = 2;", pa.timestamp("s", "UTC"), 1 << 30, 1 << 50,
    ),
    "duration": ("google.protobuf.Duration f = 2;", pa.duration("s"), dt.timedelta(1), 1 << 50),
    "items": ("repeated uint32 f = 2;", pa.list_(pa.int32()), [1, 2], [1, -1]),
}  # fmt: skip

COUNT = 50
BAD = (0, 7, 8, 20, 49)


def rows_of(kind, good, bad) -> tuple[pa.Array, pa.Array]:
    """Rows with fields before and after the one at fault; the same with nulls in the place of the faulty ones."""
    values = [bad if row in BAD else good for row in range(COUNT)]
    numbers = [row * 1000 for row in range(COUNT)]
    column = pa.array(values, kind)
    columns = [pa.array(numbers), column, pa.array([f"after {row}" for row in range(COUNT)])]
    names = ["before", "f", "after"]
    missing = pa.array([row in BAD or row == 5 for row in range(COUNT)])
    with_null = pa.StructArray.from_arrays(columns, names, mask=pa.array([row == 5 for row in range(COUNT)]))
    return with_null, pa.StructArray.from_arrays(columns, names, mask=missing)


def compare(encoder, rows, without, monkeypatch) -> None:
    expected = encoder.encode(without, b"p").to_pylist()
    assert [row for row, value in enumerate(expected) if value is None] == sorted({5, *BAD})
    with pytest.raises(UnencodableRowsError) as raised:
        encoder.encode(rows, b"p")
    for size in (8192, 16, 1):
        monkeypatch.setattr(slices, "_SLICE_ROWS", size)
        faults = []
        encoded = encoder.encode(rows, b"p", faults)
        encoded.validate(full=True)
        assert encoded.to_pylist() == expected
        assert faults == list(raised.value.faults)
        assert [fault.row for fault in faults] == list(BAD)


@pytest.mark.parametrize("case", AVRO)
def test_avro(case, monkeypatch):
    schema, kind, good, bad = AVRO[case]
    rows, without = rows_of(kind, good, bad)
    fields = [("before", "long"), ("f", schema), ("after", "string")]
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": each} for name, each in fields]}
    compare(plan_avro(json.dumps(record), rows.type), rows, without, monkeypatch)


@pytest.mark.parametrize("case", PROTOBUF)
def test_protobuf(case, monkeypatch):
    field, kind, good, bad = PROTOBUF[case]
    rows, without = rows_of(kind, good, bad)
    message = proto3(f"message M {{ int64 before = 1; {field} string after = 3; }}")
    compare(plan_protobuf(message, "M", rows.type), rows, without, monkeypatch)
