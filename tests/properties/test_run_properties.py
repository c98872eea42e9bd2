"""Wide rows, whose neighbouring fields are encoded together: the bytes of fastavro and upb, and faults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.schemas.encoding import runs
from spark_kafka_sink.schemas.encoding.avro import plan_avro
from spark_kafka_sink.schemas.encoding.encoder import EncodingFault
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from tests.unit.encoding.avro_referee import written
from tests.unit.encoding.protos import upb

PROTO = descriptor_pb2.FieldDescriptorProto
TAGS = [1, 15, 16, 2047, 2048, (1 << 18) + 1, (1 << 25) + 1]


def edges(bits: int) -> st.SearchStrategy[int]:
    """Signed numbers of so many bits, most of them where a varint, zigzag or not, becomes a byte longer."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    near = [sign * (1 << power) + step for power in range(bits) for sign in (1, -1) for step in (-1, 0, 1)]
    return st.sampled_from([each for each in near if low <= each <= high]) | st.integers(low, high)


TEXTS = st.sampled_from(["", "a", "é", "x" * 63, "x" * 64, "y" * 8192, "ü" * 300]) | st.text(max_size=9)
STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]


@dataclass(frozen=True)
class Kind:
    """Neighbouring columns: their Avro and Protobuf types, Arrow types and values."""

    avro: str
    proto: int
    arrow: list[pa.DataType]
    values: st.SearchStrategy[Any]


KINDS = [
    Kind("long", PROTO.TYPE_INT64, [pa.int64()], edges(64)),
    Kind("long", PROTO.TYPE_SINT64, [pa.int64()], edges(64)),
    Kind("long", PROTO.TYPE_INT64, [pa.int64()], st.integers(-1, 1)),
    Kind("long", PROTO.TYPE_INT64, [pa.int8(), pa.int16(), pa.int32(), pa.int64()], edges(8)),
    Kind("long", PROTO.TYPE_UINT64, [pa.uint8(), pa.uint32()], edges(8).map(abs).map(lambda each: each % 128)),
    Kind("int", PROTO.TYPE_SINT32, [pa.int32()], edges(32)),
    Kind("string", PROTO.TYPE_STRING, STRINGS, TEXTS),
    Kind("bytes", PROTO.TYPE_BYTES, BINARIES, TEXTS.map(str.encode)),
]


@dataclass
class Column:
    kind: Kind
    array: pa.Array
    nulls: str


@st.composite
def columns(draw: st.DrawFn) -> list[Column]:
    """Runs of 1 to 9 columns each, of as many rows, with nulls in none, some or all of them."""
    rows = draw(st.integers(0, 20))
    found: list[Column] = []
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)):
        same = draw(st.sampled_from([None, "none", "some", "all"]))
        for _ in range(draw(st.integers(1, 9))):
            values = draw(st.lists(kind.values, min_size=rows, max_size=rows))
            nulls = same or draw(st.sampled_from(["none", "some", "all"]))
            there = {"none": st.just(True), "all": st.just(False), "some": st.booleans()}[nulls]
            present = draw(st.lists(there, min_size=rows, max_size=rows))
            found.append(Column(kind, hidden(values, present, draw(st.sampled_from(kind.arrow))), nulls))
    return found


def hidden(values: list[Any], present: list[bool], kind: pa.DataType) -> pa.Array:
    """An array with nulls whose slots still hold the values: numbers, and offsets that span bytes."""
    array = pa.array(values, kind)
    if all(present) or pa.types.is_dictionary(kind):
        return (
            array if all(present) else pa.array([v if p else None for v, p in zip(values, present, strict=True)], kind)
        )
    validity = pa.py_buffer(np.packbits(np.array(present, bool), bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [validity, *array.buffers()[1:]])


def struct(table: list[Column], missing: list[bool]) -> pa.Array:
    mask = pa.array(missing[: len(table[0].array)], pa.bool_())
    return pa.StructArray.from_arrays(
        [each.array for each in table], [f"c{number}" for number in range(len(table))], mask=mask
    )


def small(values: int):
    """Blocks of few rows, and runs from ``values % 3 + 1`` fields on."""
    constants = {"_BLOCK_VALUES": values, "_GATHERED_VALUES": 3 * values, "_TEXT_VALUES": values}
    return mock.patch.multiple(runs, _MIN_FIELDS=values % 3 + 1, **constants)


MISSING = st.lists(st.booleans(), min_size=20, max_size=20) | st.just([False] * 20)
BLOCKS = st.sampled_from([1, 7, 30, 1 << 15])


@settings(max_examples=150, deadline=None)
@given(table=columns(), missing=MISSING, block=BLOCKS, bounds=st.tuples(*[st.integers(0, 20)] * 3), data=st.data())
def test_the_bytes_are_those_of_fastavro(table, missing, block, bounds, data):
    array = struct(table, missing)
    fields = []
    for number, each in enumerate(table):
        union = [["null", each.kind.avro], [each.kind.avro, "null"], [each.kind.avro]]
        # A null row has a null in every column, which no schema refuses.
        wanted = union if each.nulls == "none" else union[:2]
        kind = data.draw(st.sampled_from(wanted))
        fields.append({"name": f"c{number}", "type": kind[0] if len(kind) == 1 and number % 2 else kind})
    schema = {"type": "record", "name": "R", "fields": fields}
    rows = array.to_pylist()
    expected = [None if row is None else written(schema, [row])[0] for row in rows]
    start, end, cut = bounds
    with small(block):
        encoder = plan_avro(json.dumps(schema), array.type)
        assert encoder.encode(array).to_pylist() == expected
        assert encoder.encode(array[start:end]).to_pylist() == expected[start:end]
        chunks = pa.chunked_array([array[:cut], array[:0], array[cut:]], array.type)
        assert encoder.encode(chunks, b"prefix").to_pylist() == [each and b"prefix" + each for each in expected]


@settings(max_examples=150, deadline=None)
@given(table=columns(), missing=MISSING, block=BLOCKS, start=st.integers(0, 20), data=st.data())
def test_the_bytes_are_those_of_upb(table, missing, block, start, data):
    array = struct(table, missing)
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    first = data.draw(st.sampled_from(TAGS))
    presence: list[bool] = []
    same = data.draw(st.sampled_from([None, False, True]))
    for number, each in enumerate(table):
        presence.append(data.draw(st.booleans()) if same is None else same)
        field = message.field.add(
            name=f"c{number}", number=first + number, label=PROTO.LABEL_OPTIONAL, type=each.kind.proto
        )
        if presence[-1]:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_c{number}")
    descriptor_set = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    cls = upb(descriptor_set)
    expected = []
    for row in array.to_pylist():
        there = None if row is None else {name: value for name, value in row.items() if value is not None}
        expected.append(None if there is None else cls(**there).SerializeToString(deterministic=True))
    with small(block):
        encoder = plan_protobuf(descriptor_set, "M", array.type)
        assert encoder.encode(array).to_pylist() == expected
        assert encoder.encode(array[start:]).to_pylist() == expected[start:]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.none() | st.sampled_from([b"", b"ok", b"\xff", b"long" * 30])] * 6), max_size=20),
    missing=MISSING,
    block=BLOCKS,
    start=st.integers(0, 20),
    nullable=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_a_run_refuses_the_rows_that_single_fields_refuse(rows, missing, block, start, nullable):
    table = [
        Column(KINDS[-1], pa.array([row[place] for row in rows], pa.binary()), "some") for place in range(len(nullable))
    ]
    array = struct(table, missing)[start:]
    fields = [{"name": f"c{n}", "type": ["null", "string"] if each else "string"} for n, each in enumerate(nullable)]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    results = []
    for constants in (small(block), mock.patch.object(runs, "_MIN_FIELDS", 99)):
        with constants:
            faults: list[EncodingFault] = []
            results.append((plan_avro(schema, array.type).encode(array, faults=faults).to_pylist(), faults))
    assert results[0] == results[1]
