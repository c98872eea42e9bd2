"""Schemas and rows of any kind: fastavro's bytes; and nothing is written that does not decode to what came in."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_kafka_sink import encode_avro
from spark_kafka_sink.schemas.encoding.encoder import EncodingFault, SchemaMismatchError, UnencodableRowsError
from tests.unit.encoding.avro_referee import read, written

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """A schema, an Arrow type for it and values for both. ``null``: whether the schema takes null."""

    schema: Any
    kind: pa.DataType
    values: st.SearchStrategy[Any]
    null: bool = False


def millis(values):
    return values.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))


def decimals(precision, scale):
    numbers = st.integers(-(10**precision) + 1, 10**precision - 1)
    return numbers.map(lambda number: Decimal(f"{number}E-{scale}"))


STRINGS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view()]
INSTANTS = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
LOCAL = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))
TEXTS = st.text(max_size=20)


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


LEAVES = st.one_of(
    st.sampled_from([pa.bool_()]).map(lambda kind: Column("boolean", kind, st.booleans())),
    st.sampled_from([(8, pa.int8()), (16, pa.int16()), (32, pa.int32())]).map(
        lambda each: Column("int", each[1], st.integers(-(2 ** (each[0] - 1)), 2 ** (each[0] - 1) - 1))
    ),
    st.just(Column("long", pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300))),
    st.just(Column("long", pa.uint32(), st.integers(0, 2**32 - 1))),
    st.just(Column("float", pa.float32(), st.floats(width=32, allow_nan=False))),
    st.just(Column("double", pa.float64(), st.floats(allow_nan=False))),
    st.sampled_from(STRINGS).map(lambda kind: Column("string", kind, TEXTS)),
    st.sampled_from(BINARIES).map(lambda kind: Column("bytes", kind, st.binary(max_size=20))),
    st.just(Column(logical("int", "date"), pa.date32(), st.dates())),
    st.just(Column(logical("int", "time-millis"), pa.time32("ms"), millis(st.times()))),
    st.just(Column(logical("long", "time-micros"), pa.time64("us"), st.times())),
    st.just(Column(logical("long", "timestamp-millis"), pa.timestamp("us", tz="UTC"), millis(INSTANTS))),
    st.just(Column(logical("long", "timestamp-micros"), pa.timestamp("us", tz="UTC"), INSTANTS)),
    st.just(Column(logical("long", "local-timestamp-millis"), pa.timestamp("ms"), millis(LOCAL))),
    st.just(Column(logical("long", "local-timestamp-micros"), pa.timestamp("us"), LOCAL)),
    st.just(Column(logical("bytes", "decimal", precision=38, scale=3), pa.decimal128(38, 3), decimals(38, 3))),
    st.just(Column(logical("bytes", "decimal", precision=9, scale=9), pa.decimal128(9, 9), decimals(9, 9))),
    st.just(Column(logical("string", "uuid"), pa.string(), st.uuids().map(str))),
)


@st.composite
def columns(draw: st.DrawFn, names: Iterator[str], depth: int) -> Column:
    shapes = ["leaf", "leaf", "named"] + ["record", "array", "map"] * (depth > 0)
    column = draw(
        {
            "leaf": lambda: LEAVES,
            "named": lambda: named(names),
            "record": lambda: records(names, depth - 1),
            "array": lambda: arrays(names, depth - 1),
            "map": lambda: maps(names, depth - 1),
        }[draw(st.sampled_from(shapes))]()
    )
    null = draw(st.sampled_from([None, 0, 1]))
    if null is None:
        return column
    branches = [column.schema, column.schema]
    branches[null] = "null"
    return Column(branches, column.kind, st.none() | column.values, null=True)


@st.composite
def named(draw: st.DrawFn, names: Iterator[str]) -> Column:
    name = next(names)
    if draw(st.booleans()):
        symbols = draw(st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), min_size=1, unique=True))
        return Column({"type": "enum", "name": name, "symbols": symbols}, pa.string(), st.sampled_from(symbols))
    size = draw(st.integers(1, 20))
    schema = {"type": "fixed", "name": name, "size": size}
    if draw(st.booleans()):
        precision = len(str(2 ** (8 * size - 1) - 1)) - 1
        assume(1 <= precision <= 38)
        schema |= {"logicalType": "decimal", "precision": precision, "scale": 1}
        return Column(schema, pa.decimal128(precision, 1), decimals(precision, 1))
    return Column(schema, pa.binary(size), st.binary(min_size=size, max_size=size))


@st.composite
def records(draw: st.DrawFn, names: Iterator[str], depth: int) -> Column:
    fields = draw(st.dictionaries(st.sampled_from("abcdefgh"), columns(names, depth), max_size=5))
    schema = {
        "type": "record",
        "name": next(names),
        "fields": [{"name": name, "type": field.schema} for name, field in fields.items()],
    }
    order = draw(st.permutations(list(fields)))
    kind = pa.struct([(name, fields[name].kind) for name in order])
    return Column(schema, kind, st.fixed_dictionaries({name: field.values for name, field in fields.items()}))


@st.composite
def arrays(draw: st.DrawFn, names: Iterator[str], depth: int) -> Column:
    item = draw(columns(names, depth))
    kind = draw(st.sampled_from([pa.list_, pa.large_list, pa.list_view]))(item.kind)
    return Column({"type": "array", "items": item.schema}, kind, st.lists(item.values, max_size=4))


@st.composite
def maps(draw: st.DrawFn, names: Iterator[str], depth: int) -> Column:
    value = draw(columns(names, depth))
    kind = pa.map_(draw(st.sampled_from(STRINGS[:2])), value.kind)
    return Column({"type": "map", "values": value.schema}, kind, st.dictionaries(TEXTS, value.values, max_size=4))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Column, list[Any]]:
    column = draw(columns((f"N{number}" for number in itertools.count()), 3))
    return column, draw(st.lists(column.values | st.none(), max_size=12))


@settings(max_examples=60, deadline=None)
@given(table=tables(), start=st.integers(0, 12), end=st.integers(0, 12), cut=st.integers(0, 12))
def test_the_bytes_are_those_of_fastavro(table, start, end, cut):
    column, rows = table
    array = pa.array(rows, column.kind)
    chunks = pa.chunked_array([array[:cut], array[cut:]], column.kind)
    schema = json.dumps(column.schema)
    expected: list[bytes | None] = [None if row is None else written(column.schema, [row])[0] for row in rows]

    for layout, wanted in ((array, expected), (array[start:end], expected[start:end]), (chunks, expected)):
        result = encode_avro(layout, schema)
        result.validate(full=True)
        for mine, theirs in zip(result.to_pylist(), wanted, strict=True):
            # fastavro takes a byte more than Java for decimals as -128
            assert mine == theirs or (
                b"decimal" in schema.encode() and read(column.schema, mine) == read(column.schema, theirs)
            )


@settings(max_examples=40, deadline=None)
@given(table=tables(), data=st.data())
def test_a_null_where_the_schema_has_none_is_a_fault_of_its_row(table, data):
    column, rows = table
    rows = [data.draw(with_nulls(row)) for row in rows]
    array = pa.array(rows, column.kind)
    wrong = [number for number, row in enumerate(rows) if row is not None and has_forbidden_null(column.schema, row)]
    faults: tuple[EncodingFault, ...] = ()
    try:
        result = encode_avro(array, json.dumps(column.schema)).to_pylist()
    except UnencodableRowsError as error:
        faults = error.faults
    else:
        assert [each is None for each in result] == [row is None for row in rows]
    assert [fault.row for fault in faults] == wrong
    assert all("null is not allowed" in fault.problem for fault in faults)


@st.composite
def with_nulls(draw: st.DrawFn, value: Any) -> Any:
    """The value with some of its parts null."""
    if draw(st.integers(0, 5)) == 0:
        return None
    if isinstance(value, dict):
        return {key: draw(with_nulls(each)) for key, each in value.items()}
    return [draw(with_nulls(each)) for each in value] if isinstance(value, list) else value


def has_forbidden_null(schema: Any, value: Any) -> bool:
    if isinstance(schema, list):
        return value is not None and any(has_forbidden_null(branch, value) for branch in schema if branch != "null")
    if value is None:
        return True
    if not isinstance(schema, dict):
        return False
    match schema["type"]:
        case "record":
            return any(has_forbidden_null(field["type"], value[field["name"]]) for field in schema["fields"])
        case "array":
            return any(has_forbidden_null(schema["items"], each) for each in value)
        case "map":
            return any(has_forbidden_null(schema["values"], each) for each in value.values())
    return False


SCHEMAS = [
    *("boolean", "int", "long", "float", "double", "string", "bytes"),
    *(logical("int", "date"), logical("int", "time-millis"), logical("long", "time-micros")),
    *(logical("long", f"{local}timestamp-{unit}") for local in ("", "local-") for unit in ("millis", "micros")),
    logical("bytes", "decimal", precision=6, scale=2),
    {"type": "fixed", "name": "Dec", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 4},
    {"type": "fixed", "name": "F", "size": 3},
    {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"},
    {"type": "enum", "name": "E", "symbols": ["a", "b"]},
    logical("string", "uuid"),
    *(["int", "string"], ["null", "long", "bytes"], ["double", "boolean"]),
]
SMALL = st.integers(-300, 300)
TIMES = st.integers(0, 86_399_999)
NUMBERS = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): SMALL | st.integers(-(2**31), 2**31 - 1),
    pa.int64(): SMALL | st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
}
COUNTS = {
    pa.date32(): st.integers(-700_000, 2_900_000),
    pa.date64(): SMALL.map(lambda days: days * 86_400_000),
    pa.time32("s"): st.integers(0, 86_399),
    pa.time32("ms"): TIMES,
    pa.time64("us"): TIMES.map(lambda each: each * 1000) | TIMES,
    pa.time64("ns"): TIMES.map(lambda each: each * 1000) | TIMES,
    pa.timestamp("s", "UTC"): SMALL,
    pa.timestamp("us", "UTC"): st.integers(-(2**50), 2**50),
    pa.timestamp("ns", "UTC"): st.integers(-(2**60), 2**60) | SMALL.map(lambda each: each * 1000),
    pa.timestamp("ms"): st.integers(-(2**40), 2**40),
    pa.timestamp("us"): st.integers(-(2**50), 2**50),
    pa.duration("us"): st.integers(-(2**62), 2**62),
    pa.duration("s"): SMALL | st.integers(-(2**62), 2**62),
}
TEXT_KINDS = {
    pa.string(): TEXTS | st.sampled_from(["a", "b", str(uuid.UUID(int=5))]),
    pa.binary(): st.binary(max_size=4) | TEXTS.map(str.encode),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.binary(16): st.binary(min_size=16, max_size=16),
    pa.decimal128(5, 1): decimals(5, 1),
    pa.decimal128(20, 2): decimals(20, 2) | decimals(6, 2),
    pa.decimal256(50, 4): decimals(50, 4) | decimals(8, 4),
}
KINDS = {**NUMBERS, **COUNTS, **TEXT_KINDS}


@settings(max_examples=400, deadline=None)
@given(schema=st.sampled_from(SCHEMAS), kind=st.sampled_from(list(KINDS)), data=st.data())
def test_whatever_is_written_decodes_to_what_came_in(schema, kind, data):
    values = data.draw(st.lists(KINDS[kind] | st.none(), min_size=1, max_size=5))
    width = pa.int32() if kind in COUNTS and kind.bit_width == 32 else pa.int64()
    array = pa.array(values, width).view(kind) if kind in COUNTS else pa.array(values, kind)
    try:
        result = encode_avro(array, json.dumps(schema)).to_pylist()
    except SchemaMismatchError:
        return
    except UnencodableRowsError as error:
        wrong = {fault.row for fault in error.faults}
        good = [row for row in range(len(values)) if row not in wrong]
        array, values = array.take(pa.array(good, pa.int64())), [values[row] for row in good]
        result = encode_avro(array, json.dumps(schema)).to_pylist()
    # A number is written into a logical type as it is: days, milliseconds, …, of any year.
    raw = schema["type"] if isinstance(schema, dict) and schema["type"] in ("int", "long") else schema
    for value, encoded in zip(values, result, strict=True):
        if value is None:
            assert encoded is None
        else:
            assert same(kind, value, schema, read(raw if pa.types.is_integer(kind) else schema, encoded))


def same(kind: pa.DataType, value: Any, schema: Any, decoded: Any) -> bool:
    """Whether a reader has the value that was in the column; timestamps in milliseconds or plain long round down."""
    if kind in COUNTS:
        have, per_second = in_nanos(kind, value), 10**9
        count = decoded if isinstance(decoded, int) else counted(decoded)
        if isinstance(decoded, int):
            unit = {"date32[day]": 86_400 * per_second, "date64[ms]": 86_400 * per_second}.get(
                str(kind), 1000 if pa.types.is_duration(kind) else 10**6
            )
            return have // unit == decoded if pa.types.is_timestamp(kind) else have == decoded * unit
        rounds = "timestamp-millis" in str(schema)
        return have // 10**6 * 10**6 == count if rounds else have == count
    if "uuid" in str(schema) and isinstance(decoded, bytes):  # fastavro reads a fixed as bytes
        decoded = uuid.UUID(bytes=decoded)
    if isinstance(decoded, uuid.UUID):
        return decoded == (uuid.UUID(bytes=value) if isinstance(value, bytes) else uuid.UUID(value))
    if isinstance(value, str) and isinstance(decoded, bytes):
        return value.encode() == decoded
    if isinstance(value, bytes) and isinstance(decoded, str):
        return value == decoded.encode()
    return bool(value == decoded)


def in_nanos(kind: pa.DataType, value: int) -> int:
    if pa.types.is_date32(kind):
        return value * 86_400 * 10**9
    return value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}["ms" if pa.types.is_date64(kind) else kind.unit]


def counted(decoded: Any) -> int:
    """Nanoseconds of what fastavro reads."""
    match decoded:
        case datetime():
            return (decoded.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) * 1000
        case date():
            return (decoded - EPOCH.date()).days * 86_400 * 10**9
        case time():
            return (datetime.combine(EPOCH, decoded, UTC) - EPOCH) // timedelta(microseconds=1) * 1000
    raise AssertionError(decoded)
