"""Descriptors × Arrow columns → encoded → the bytes that upb writes, which shares nothing with the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from tests.unit.encoding.protos import upb

PROTO = descriptor_pb2.FieldDescriptorProto
NUMBERS = [1, 2, 3, 4, 5, 6, 7, 15, 16, 2047, 2048, (1 << 18) + 1, (1 << 29) - 1]
ENUM = {"ZERO": 0, "ONE": 1, "SAME": 1, "LOW": -3, "HIGH": (1 << 31) - 1}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.just("x" * 300)
BYTES = st.binary(max_size=20) | st.just(bytes(200))
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [each for power in range(0, bits + 1, 7) for each in ((1 << power) - 1, 1 << power, -(1 << power))]
    edges += [0, lowest, highest]
    return st.integers(lowest, highest) | st.sampled_from([each for each in edges if lowest <= each <= highest])


# Per Protobuf type: an Arrow type and values that fit.
SIGNED_32 = [(pa.int32(), integers(32)), (pa.int8(), integers(8)), (pa.uint16(), integers(16, False))]
SIGNED_64 = [(pa.int64(), integers(64)), (pa.int32(), integers(32)), (pa.uint32(), integers(32, False))]
UNSIGNED_32 = [(pa.uint32(), integers(32, False)), (pa.int32(), integers(31, False)), (pa.int64(), integers(32, False))]
UNSIGNED_64 = [(pa.uint64(), integers(64, False)), (pa.int64(), integers(63, False)), (pa.uint8(), integers(8, False))]
FLOATS = [(pa.float32(), st.floats(width=32)), (pa.float16(), st.floats(width=16)), (pa.int16(), integers(16))]
DOUBLES = [(pa.float64(), st.floats()), (pa.float32(), st.floats(width=32)), (pa.int32(), integers(32))]
STRINGS = [(kind, TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())]
BINARIES = [(kind, BYTES) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())]
BINARIES += [(pa.binary(3), st.binary(min_size=3, max_size=3)), (pa.string(), TEXT)]
SCALARS: dict[int, list[tuple[pa.DataType, st.SearchStrategy[Any]]]] = {
    PROTO.TYPE_INT32: SIGNED_32,
    PROTO.TYPE_SINT32: SIGNED_32,
    PROTO.TYPE_SFIXED32: SIGNED_32,
    PROTO.TYPE_INT64: SIGNED_64,
    PROTO.TYPE_SINT64: SIGNED_64,
    PROTO.TYPE_SFIXED64: SIGNED_64,
    PROTO.TYPE_UINT32: UNSIGNED_32,
    PROTO.TYPE_FIXED32: UNSIGNED_32,
    PROTO.TYPE_UINT64: UNSIGNED_64,
    PROTO.TYPE_FIXED64: UNSIGNED_64,
    PROTO.TYPE_FLOAT: FLOATS,
    PROTO.TYPE_DOUBLE: DOUBLES,
    PROTO.TYPE_BOOL: [(pa.bool_(), st.booleans())],
    PROTO.TYPE_STRING: [
        *STRINGS,
        (pa.binary(), TEXT.map(str.encode)),
        (pa.dictionary(pa.int8(), pa.string()), TEXT),
    ],
    PROTO.TYPE_BYTES: BINARIES,
    PROTO.TYPE_ENUM: [(pa.string(), st.sampled_from([*ENUM])), (pa.int32(), st.sampled_from([*ENUM.values()]))],
}
KEYS = [
    each for each in SCALARS if each not in (PROTO.TYPE_FLOAT, PROTO.TYPE_DOUBLE, PROTO.TYPE_BYTES, PROTO.TYPE_ENUM)
]
WELL_KNOWN = [
    *(
        ("Timestamp", pa.timestamp(unit, "UTC"), st.integers(-62_135_596_800 * per, 253_402_300_799 * per))
        for unit, per in PER_SECOND.items()
        if unit != "ns"
    ),
    ("Timestamp", pa.timestamp("ns", "UTC"), integers(64)),
    *(
        ("Duration", pa.duration(unit), st.integers(-315_576_000_000 * per, 315_576_000_000 * per))
        for unit, per in PER_SECOND.items()
        if unit in ("s", "ms")
    ),
    ("Duration", pa.duration("us"), integers(58)),
    ("Duration", pa.duration("ns"), integers(64)),
    ("Int64Value", pa.int64(), integers(64)),
    ("UInt32Value", pa.int64(), integers(32, False)),
    ("DoubleValue", pa.float64(), st.floats()),
    ("BoolValue", pa.bool_(), st.booleans()),
    ("StringValue", pa.string(), TEXT),
    ("BytesValue", pa.binary_view(), BYTES),
]


@dataclass
class Column:
    """A field's name, its Arrow type, its values in a row, and how upb's message gets one of them."""

    name: str
    kind: pa.DataType
    values: st.SearchStrategy[Any]
    shape: str = "scalar"
    inner: Any = None
    required: bool = False

    def set(self, message: Any, value: Any) -> None:
        if value is None:
            return
        if self.shape == "list":
            for each in value:
                self.inner.add(getattr(message, self.name), each)
        elif self.shape == "map":
            for key, each in value:
                self.inner.put(getattr(message, self.name), text(key), each)
        elif self.inner is None:
            setattr(
                message,
                self.name,
                text(value) if message.DESCRIPTOR.fields_by_name[self.name].type == 9 else raw(value),
            )
        else:
            self.inner.fill(getattr(message, self.name), value)


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def raw(value: Any) -> Any:
    return value.encode() if isinstance(value, str) and value not in ENUM else value


@dataclass
class Scalar:
    """A value of a list or a map."""

    type: int

    def convert(self, value: Any) -> Any:
        if self.type == PROTO.TYPE_STRING:
            return text(value)
        if self.type == PROTO.TYPE_BYTES:
            return raw(value)
        return ENUM.get(value, value) if self.type == PROTO.TYPE_ENUM else value

    def add(self, values: Any, value: Any) -> None:
        values.append(self.convert(value))

    def put(self, entries: Any, key: Any, value: Any) -> None:
        entries[key] = self.convert(value)


class Submessage:
    def fill(self, message: Any, value: Any) -> None:
        raise NotImplementedError

    def add(self, values: Any, value: Any) -> None:
        self.fill(values.add(), value)

    def put(self, entries: Any, key: Any, value: Any) -> None:
        self.fill(entries[key], value)


@dataclass
class WellKnown(Submessage):
    name: str
    kind: pa.DataType

    def fill(self, message: Any, value: Any) -> None:
        message.SetInParent()
        if self.name not in ("Timestamp", "Duration"):
            message.value = value
            return
        per = PER_SECOND[self.kind.unit]
        seconds, rest = divmod(value, per)
        if self.name == "Duration" and seconds < 0 and rest:
            seconds, rest = seconds + 1, rest - per
        message.seconds, message.nanos = seconds, rest * (10**9 // per)


@dataclass
class Struct(Submessage):
    columns: list[Column]
    oneof: tuple[str, ...] = ()

    @property
    def kind(self) -> pa.DataType:
        return pa.struct([(each.name, each.kind) for each in self.columns])

    def fill(self, message: Any, value: dict[str, Any]) -> None:
        message.SetInParent()
        for each in self.columns:
            each.set(message, value[each.name])

    def rows(self) -> st.SearchStrategy[Any]:
        def one_of(row: dict[str, Any]) -> dict[str, Any]:
            there = [name for name in self.oneof if row[name] is not None]
            return {name: None if name in there[1:] else value for name, value in row.items()}

        each = {column.name: column.values if column.required else st.none() | column.values for column in self.columns}
        return st.fixed_dictionaries(each).map(one_of)


@st.composite
def structs(draw: Any, message: Any, syntax: str, depth: int) -> Struct:
    """Adds fields to a ``DescriptorProto``, and returns the columns for them, in another order."""
    columns: list[Column] = []
    numbers = draw(st.permutations(NUMBERS))
    oneof: list[str] = []
    for index in range(draw(st.integers(0, 5))):
        field = message.field.add(name=f"f{index}", number=numbers[index], label=PROTO.LABEL_OPTIONAL)
        shapes = ["scalar", "scalar", "presence", "oneof", "list", "map"]
        shape = draw(st.sampled_from([*shapes, "required"] if syntax == "proto2" else shapes))
        if shape == "map":
            columns.append(draw(maps(message, field, syntax, depth)))
            continue
        kind, values, inner = draw(types(message, field, syntax, depth))
        column = Column(field.name, kind, values, inner=None if isinstance(inner, Scalar) else inner)
        if shape == "list":
            field.label = PROTO.LABEL_REPEATED
            packable = field.type not in (PROTO.TYPE_STRING, PROTO.TYPE_BYTES, PROTO.TYPE_MESSAGE)
            if packable and draw(st.booleans()):
                field.options.packed = draw(st.booleans())
            make = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view]))
            column = Column(field.name, make(kind), st.lists(values, max_size=3), "list", inner)
        elif shape == "oneof":
            if not oneof:
                message.oneof_decl.add(name="one")
            field.oneof_index = 0
            oneof.append(field.name)
        elif shape == "required":
            field.label = PROTO.LABEL_REQUIRED
            column.required = True
        elif shape == "presence" and syntax == "proto3":
            field.proto3_optional = True
        columns.append(column)
    _add_synthetic_oneofs(message)
    return Struct(draw(st.permutations(columns)), tuple(oneof))


def _add_synthetic_oneofs(message: Any) -> None:
    """Behind the others, one for each optional field of proto3."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


@st.composite
def types(draw: Any, message: Any, field: Any, syntax: str, depth: int) -> tuple[pa.DataType, Any, Any]:
    which = draw(st.sampled_from(["scalar", "scalar", "scalar", "known"] + ["message"] * (depth > 0)))
    if which == "scalar":
        field.type = draw(st.sampled_from([*SCALARS]))
        if field.type == PROTO.TYPE_ENUM:
            field.type_name = ".E"
        kind, values = draw(st.sampled_from(SCALARS[field.type]))
        return kind, values, Scalar(field.type)
    field.type = PROTO.TYPE_MESSAGE
    if which == "known":
        name, kind, values = draw(st.sampled_from(WELL_KNOWN))
        field.type_name = f".google.protobuf.{name}"
        return kind, values, WellKnown(name, kind)
    nested = message.nested_type.add(name=f"N{len(message.nested_type)}")
    field.type_name = nested.name
    struct = draw(structs(nested, syntax, depth - 1))
    return struct.kind, struct.rows(), struct


@st.composite
def maps(draw: Any, message: Any, field: Any, syntax: str, depth: int) -> Column:
    entry = message.nested_type.add(name=f"{field.name.upper()}Entry")
    entry.options.map_entry = True
    field.label, field.type, field.type_name = PROTO.LABEL_REPEATED, PROTO.TYPE_MESSAGE, entry.name
    key = entry.field.add(name="key", number=1, label=PROTO.LABEL_OPTIONAL, type=draw(st.sampled_from(KEYS)))
    key_kind, keys = draw(st.sampled_from(SCALARS[key.type]))
    value = entry.field.add(name="value", number=2, label=PROTO.LABEL_OPTIONAL)
    kind, values, inner = draw(types(message, value, syntax, depth))
    entries = st.lists(st.tuples(keys, values), max_size=3, unique_by=lambda each: each[0])
    return Column(field.name, pa.map_(key_kind, kind), entries, "map", inner)


@st.composite
def cases(draw: Any) -> tuple[bytes, Struct, list[Any]]:
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax=syntax)
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("duration", "timestamp", "wrappers"))
    enum = file.enum_type.add(name="E")
    enum.options.allow_alias = True
    for name, number in ENUM.items():
        enum.value.add(name=name, number=number)
    struct = draw(structs(file.message_type.add(name="M"), syntax, 2))
    rows = draw(st.lists(st.none() | struct.rows(), max_size=6))
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), struct, rows


@given(cases())
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_rows_have_the_bytes_that_upb_writes(case):
    descriptor_set, struct, rows = case
    message = upb(descriptor_set)
    # A slice of a longer array; raw numbers become timestamps and durations by the type.
    array = pa.array([None, *rows, None], struct.kind)[1:-1]
    encoded = plan_protobuf(descriptor_set, "M", array.type).encode(array).to_pylist()
    for row, got in zip(rows, encoded, strict=True):
        if row is None:
            assert got is None
            continue
        expected = message()
        struct.fill(expected, row)
        written = expected.SerializeToString(deterministic=True)
        assert len(got) == len(written)
        # upb sorts the entries of maps; the others are in their order already.
        again = message.FromString(got).SerializeToString(deterministic=True)
        assert (again if b"Entry" in descriptor_set else got) == written
