"""What fits which schema: defaults, missing and extra columns, promotions, branches; and the text of each mismatch."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext, suppress
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.schemas.encoding.avro import encode_avro, plan_avro
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError, SchemaMismatchError, UnencodableRowsError
from tests.support.waiting import cpu_ratio
from tests.unit.encoding.avro_referee import encoded, mismatches, read, record, struct, written

ONE = struct(x=pa.array([1, 2]))


def with_field(schema, **default):
    fields = [{"name": "x", "type": "long"}, {"name": "d", "type": schema, **default}]
    return {"type": "record", "name": "R", "fields": fields}


ENUM = {"type": "enum", "name": "E", "symbols": ["a", "b"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
RECORD = {
    "type": "record",
    "name": "S",
    "fields": [{"name": "p", "type": "int"}, {"name": "q", "type": "int", "default": 7}],
}


@pytest.mark.parametrize(
    ("schema", "default", "value"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -5, -5),
        ("long", 2**40, 2**40),
        ("float", 1.5, 1.5),
        ("double", 0.1, 0.1),
        ("string", "é", "é"),
        ("bytes", "\xff\0", b"\xff\0"),
        (FIXED, "\xfe\1", b"\xfe\1"),
        (ENUM, "b", "b"),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "string"}, {"k": "v"}, {"k": "v"}),
        (RECORD, {"p": 1}, {"p": 1, "q": 7}),
        (["null", "string"], None, None),
        (["string", "null"], "x", "x"),
        (["null", "long"], 3, 3),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, None),
    ],
)
def test_a_missing_column_gets_the_default(schema, default, value):
    schema = with_field(schema, default=default)
    rows = [read(schema, each) for each in encoded(schema, ONE)]

    assert [row["x"] for row in rows] == [1, 2]
    if value is not None or default is None:
        assert [row["d"] for row in rows] == [value, value]


def test_a_missing_column_without_default_is_null():
    for schema in (["null", "long"], ["long", "null"], "null"):
        assert [read(with_field(schema), each)["d"] for each in encoded(with_field(schema), ONE)] == [None, None]


def test_a_missing_column_in_a_nested_record():
    schema = record(s={**with_field("string", default="long enough to be a piece of its own"), "name": "S"})

    assert [read(schema, each)["s"]["d"] for each in encoded(schema, struct(s=ONE))] == [
        "long enough to be a piece of its own"
    ] * 2


def test_all_mismatches_at_once():
    schema = record(
        id="long",
        name="string",
        Total="double",
        tags={"type": "array", "items": "int"},
        at={"type": "int", "logicalType": "date"},
    )
    numbers = {"id": pa.float64(), "total": pa.float64(), "tags": pa.list_(pa.int64())}
    kind = pa.struct({**numbers, "at": pa.timestamp("us", "UTC")})

    assert mismatches(schema, kind) == [
        "total: record R has no such field (double)",
        "id: column type double does not fit schema type long",
        "name: no such column, and the field (string) has no default and no null",
        "Total: no such column, only total, and the field (double) has no default and no null",
        "tags[]: column type bigint does not fit schema type int",
        "at: column type timestamp does not fit schema type int date",
    ]


def test_two_columns_of_one_name():
    kind = pa.struct([pa.field("x", pa.int64()), pa.field("x", pa.int64())])

    assert mismatches(record(x="long"), kind) == ["x: 2 columns have this name"]


DATE = {"type": "int", "logicalType": "date"}
DECIMAL = {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "array", "value"),
    [
        (["null", "string", "bytes"], pa.array(["a"]), b"\2\2a"),
        (["null", "bytes", "string"], pa.array([b"a"]), b"\2\2a"),
        (["int", "long", "double"], pa.array([1]), b"\2\2"),
        (["null", "string", "long"], pa.array([1], pa.int16()), b"\4\2"),
        (["null", ENUM, "long"], pa.array(["b"]), b"\2\2"),
        (["null", RECORD, {"type": "map", "values": "int"}], struct(p=pa.array([1], pa.int32())), b"\2\2\x0e"),
        (["null", DATE, "long"], pa.array([5], pa.int32()), b"\4\x0a"),
        (["null", DATE, "long"], pa.array([5], pa.date32()), b"\2\x0a"),
        (["null", "bytes", DECIMAL], pa.array([Decimal("1.00")]).cast(pa.decimal128(4, 2)), b"\4\0\x64"),
        (["null", DECIMAL, "string", "bytes"], pa.array([b"x"]), b"\6\2x"),
    ],
)
def test_the_branch_of_the_columns_own_type_is_taken(schema, array, value):
    assert encoded(schema, array) == [value]


@pytest.mark.parametrize(
    ("schema", "kind", "members"),
    [
        (["null", "long", "boolean"], pa.string(), "member0 (long), member1 (boolean)"),
        (["null", "float", "double"], pa.int32(), "member0 (float), member1 (double)"),
        (["string", RECORD, {**RECORD, "name": "T"}], pa.struct([("p", pa.int32())]),
         "member0 (string), member1 (record S), member2 (record T)"),
    ],
)  # fmt: skip
def test_a_column_of_another_type_than_the_branches_is_refused_with_the_struct_to_write(schema, kind, members):
    (text,) = mismatches(schema, kind)
    assert re.sub("^column type .*? is not", "it is not", text) == (
        f"it is not the type of one branch of the union: cast it, or give a struct of {members}"
    )


def test_a_recursive_schema_as_deep_as_the_columns():
    schema = record(value="long", next=["null", "R"])
    rows = [{"value": 1, "next": {"value": 2, "next": {"value": 3}}}, {"value": 4, "next": None}]

    assert encoded(schema, pa.array(rows)) == written(schema, rows)
    assert mismatches(record(value="long", next="R"), pa.array(rows).type) == [
        "next.next.next: no such column, and the field (record R) has no default and no null"
    ]


def test_types_within_types():
    """Java takes an object around a type, as it takes logical types that do not apply."""
    schema = record(
        x={"type": {"type": "long"}},
        y={"type": ["null", {"type": "string"}]},
        z={"type": "long", "logicalType": "date"},
    )
    plain = record(x="long", y=["null", "string"], z="long")
    rows = [{"x": 1, "y": "a", "z": 5}]

    assert encoded(schema, pa.array(rows)) == written(plain, rows)


A = {"type": "record", "name": ".A", "fields": [{"name": "n", "type": "long", "default": 0}]}
TWICE = {**A, "fields": [*A["fields"], {"name": "n", "type": "int"}]}
WRONG = {**A, "fields": [{"name": "n", "type": {"type": "array", "items": "int"}, "default": ["1"]}]}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (json.dumps(record(x=A, y="A")).replace(", ", ', // "1"\n /* 2, */ '), ""),
        ({**record(x=A, y=".A"), "namespace": "n"}, ""),
        ({**record(x=A, y={**A, "doc": "/* again */"}), "namespace": "n"}, ""),
        (record(x="n.A", y={**A, "name": "n.A"}), ""),
        (record(x=TWICE, y="A"), 'A: "n" is there twice'),
        (record(x=A, y=WRONG), "A is defined again, as another type"),
    ],
)
def test_incident_other_schemas_were_taken_and_refused_than_by_javas_parser(schema, said):
    rows = pa.array([{"x": {"n": 1}, "y": {"n": 2}}])
    with pytest.raises(InvalidSchemaError, match=re.escape(said)) if said else nullcontext():
        assert encode_avro(rows, schema).to_pylist() == [b"\2\4"]


def test_incident_a_table_a_batch_and_a_dict_as_schema_raised_attribute_and_type_errors():
    batch = pa.RecordBatch.from_pylist([{"x": 1}, {"x": None}])
    for rows in (batch, pa.Table.from_batches([batch, batch.slice(2)])):
        assert encode_avro(rows, record(x=["null", "long"])).to_pylist() == [b"\2\2", b"\0"]
    for rows, schema, said in (([{"x": 1}], '"long"', "not list"), (batch, b'"long"', "not bytes")):
        with pytest.raises(InvalidRecordError, match=said):
            encode_avro(rows, schema)


def test_a_default_too_large_for_float_is_of_the_branch_double():
    schema = with_field(["float", "double"], default=1e300)
    value = encoded(schema, ONE)[0]
    assert read(schema, value)["d"] == 1e300


ENDLESS = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "N", "default": {}}]}


@pytest.mark.parametrize(("schema", "default"), [(ENDLESS, {}), ("double", 1 << 2000)])
def test_a_default_that_has_no_bytes_is_a_mismatch(schema, default):
    with pytest.raises(SchemaMismatchError):
        plan_avro(json.dumps(with_field(schema, default=default)), ONE.type)


def doubled(levels, leaf, default=None):
    """Records of which each has two fields with the record below it, and the lowest one a field of type ``leaf``."""
    below = {"type": "record", "name": "L0", "fields": [{"name": "a", "type": leaf, "default": default}]}
    for level in range(1, levels):
        kinds = zip("ab", (below, f"L{level - 1}"), strict=True)
        fields = [{"name": name, "type": kind, "default": {}} for name, kind in kinds]
        below = {"type": "record", "name": f"L{level}", "fields": fields}
    return below


@pytest.mark.parametrize(("leaf", "default"), [("null", None), ("string", "many bytes" * 10)])
def test_incident_a_default_that_doubled_with_each_level_took_all_time_and_memory(leaf, default):
    schema = with_field(doubled(20, leaf, default), default={})
    with pytest.raises(SchemaMismatchError, match="^d: .* have defaults of more than 1000000 bytes or 100000 values"):
        plan_avro(json.dumps(schema), ONE.type)


_MANY = ["null", *({"type": "record", "name": f"r{number}", "fields": []} for number in range(500))]


@pytest.mark.parametrize(("items", "value"), [(_MANY, None), ([{"type": "array", "items": _MANY}, "string"], "text")])
def test_incident_each_value_of_a_default_made_the_schema_of_the_items_again(items, value):
    """And, for a branch that did not take it, the text of that branch."""

    def plan(values):
        schema = with_field({"type": "array", "items": items}, default=[value] * values)
        plan_avro(json.dumps(schema), ONE.type)

    assert cpu_ratio(lambda: plan(300), lambda: plan(1), 3) < 5


def test_incident_a_decimal_of_billions_of_digits_or_bytes_held_the_worker():
    """Java's parser takes them, too. The largest number of so many digits has a gigabyte."""
    endless = {"type": "bytes", "logicalType": "decimal", "precision": 2**31 - 1}
    assert encoded(endless, pa.array([Decimal(-1)], pa.decimal128(38))) == [b"\2\xff"]
    huge = {**endless, "type": "fixed", "name": "F", "size": 2**31 - 1, "precision": 9}
    assert "does not fit schema type fixed F(2147483647)" in mismatches(huge, pa.decimal128(9))[0]


def test_a_schema_nested_too_deep_is_a_mismatch():
    """Python 3.14 reads JSON of that depth; there it is the schema that is nested too deep."""
    too_deep = r"^(the Avro schema is not JSON|not an Avro schema) \(maximum recursion depth exceeded"
    with pytest.raises(SchemaMismatchError, match=too_deep):
        plan_avro("[" * 50_000 + "]" * 50_000, ONE.type)


@pytest.mark.parametrize("depth", [100, 300, 400, 500, 700])
def test_incident_a_schema_nested_400_deep_was_a_recursion_error(depth):
    schema = '{"type":"array","items":' * depth + '"long"' + "}" * depth
    with pytest.raises(SchemaMismatchError):
        plan_avro(schema, pa.int64())
    nested: pa.DataType = pa.int64()
    for _ in range(depth):
        nested = pa.list_(nested)
    with suppress(SchemaMismatchError):
        plan_avro(schema, nested)


def test_a_fault_of_the_row_itself_is_told_without_a_path():
    with pytest.raises(UnencodableRowsError, match=r"^b'\\xff' is not UTF-8"):
        encode_avro(pa.array([b"\xff"]), '"string"')
