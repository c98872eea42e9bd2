"""Avro schemas of a registry that Java takes: references, wrong defaults, odd annotations and names."""

import json
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from spark_kafka_sink import encode_avro
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.schemas.encoding.avro_schema import AvroSchema
from spark_kafka_sink.schemas.encoding.encoder import InvalidSchemaError
from spark_kafka_sink.schemas.formats.format_options import FormatError
from spark_kafka_sink.schemas.registry.schema import Schema, SchemaReference
from tests.unit.formats.fake_registry import FakeRegistry
from tests.unit.formats.test_planning import plan, written

LATEST = {"use_latest_version": "true"}


def record(name, namespace=None, **fields):
    of = {} if namespace is None else {"namespace": namespace}
    return {"type": "record", "name": name, **of, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


ORDER = record("Order", "shop", id="long", line=record("Line", amount="long"), kind={
    "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}]
})  # fmt: skip


def registered(main, imports, **given):
    """The latest schema of t-value imports these."""
    registry = FakeRegistry()
    for name, each in imports.items():
        registry.register(name, Schema("AVRO", each if isinstance(each, str) else json.dumps(each)))
    references = tuple(SchemaReference(name, name, 1) for name in imports)
    registry.register("t-value", Schema("AVRO", json.dumps(main), references))
    return registry


def bytes_of(main, imports, rows):
    formats = plan(registered(main, imports), kind=rows.type, **LATEST)
    return [each[5:] for each in written(formats, rows)]


@pytest.mark.parametrize(
    ("main", "row", "wanted"),
    [
        (record("M", "shop", line="Line", kind="Kind"), {"line": {"amount": 3}, "kind": "B"}, b"\6\2"),
        (record("M", line="shop.Line", again="shop.Line"), {"line": {"amount": 3}, "again": {"amount": 4}}, b"\6\x08"),
        (
            record("M", "shop", line="Line", order="Order"),
            {"line": {"amount": 3}, "order": {"id": 1, "line": {"amount": 4}, "kind": "A"}},
            b"\6\2\x08\2\0",
        ),
        (
            record("M", "shop", order={"type": "array", "items": "Order"}, line="Line"),
            {"order": [{"id": 1, "line": {"amount": 4}, "kind": "A"}], "line": {"amount": 3}},
            b"\2\2\x08\2\0\0\6",
        ),
    ],
)
def test_incident_a_schema_that_names_a_nested_type_of_its_import_was_refused(main, row, wanted):
    assert bytes_of(main, {"order": ORDER}, pa.array([row])) == [wanted]


def test_an_import_may_be_a_union_whose_types_are_named():
    line, other = record("Line", "shop", n="long"), record("Other", "shop", s="string")
    imports = {"line": line, "all": ["null", "shop.Line", other]}
    rows = pa.array([{"line": {"n": 1}, "other": {"s": "x"}}])
    assert bytes_of(record("M", "shop", line="Line", other="Other"), imports, rows) == [b"\2\2x"]


def test_an_import_may_be_without_names_and_types_may_name_themselves():
    node = record("Node", "shop", n="long", next=["null", "Node"])
    imports = {"text": '"string"', "node": node}
    rows = pa.array([{"n": 1, "next": {"n": 2, "next": None}}], pa.struct([
        ("n", pa.int64()), ("next", pa.struct([("n", pa.int64()), ("next", pa.null())]))
    ]))  # fmt: skip
    assert bytes_of("shop.Node", imports, rows) == [b"\2\2\4\0"]


def test_a_type_of_the_schema_itself_precedes_an_imported_one_without_a_namespace():
    own = record("M", "shop", first=record("T", a="long"), second="T")
    rows = pa.array([{"first": {"a": 1}, "second": {"a": 2}}])
    assert bytes_of(own, {"t": record("T", b="string")}, rows) == [b"\2\4"]


@pytest.mark.parametrize(
    ("faulty", "said"),
    [
        ("{", r"is wrong: the Avro schema is not JSON \(Expecting property name"),
        ({"type": "enum", "name": "E"}, r"is wrong: not an Avro schema \(.* lacks the attribute 'symbols'\)"),
        (record("R", x="nowhere.T"), r"is wrong: not an Avro schema \(unknown type nowhere.T\)"),
        (record("Line", "shop"), r"is wrong: not an Avro schema \(shop.Line is defined again, as another type\)"),
        ({"name": "T"}, r"is wrong: not an Avro schema \(.* lacks the attribute 'type'\)"),
        ("3", "is wrong"),
    ],
)
def test_an_error_of_an_import_names_it(faulty, said):
    main = record("M", line="shop.Line", r=["null", *([faulty["name"]] if isinstance(faulty, dict) else [])])
    registry = registered(main, {"order": ORDER, "faulty": faulty})
    with pytest.raises(FormatError, match=rf"schema 3 of subject t-value is wrong: its import 'faulty' {said}"):
        plan(registry, **LATEST, kind=pa.struct([("line", pa.struct([("amount", pa.int64())]))]))


def test_an_error_of_the_schema_itself_names_no_import():
    with pytest.raises(InvalidSchemaError, match=r"^not an Avro schema \(unknown type Missing\)"):
        AvroSchema.parse(json.dumps(record("M", x="Missing")), [("order", json.dumps(ORDER))])


def test_a_wrong_default_matters_only_where_it_is_written():
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": 0}]
    schema = {"type": "record", "name": "M", "fields": fields}
    assert bytes_of(schema, {}, pa.array([{"a": 1, "b": "x"}])) == [b"\2\2x"]
    with pytest.raises(FormatError, match="b: the default in the schema is wrong: 0 is no string"):
        plan(registered(schema, {}), **LATEST, kind=pa.struct([("a", pa.int64())]))


@pytest.mark.parametrize(
    "numbers",
    [
        {"precision": 2, "scale": 3}, {"precision": -1}, {"precision": 0}, {"precision": "9"}, {"precision": 9.0}, {},
        {"precision": 9, "scale": -1}, {"precision": 9, "scale": "2"}, {"precision": 9, "scale": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_decimal_with_numbers_that_java_ignores_is_bytes(numbers):
    schema = json.dumps(record("M", d={"type": "bytes", "logicalType": "decimal", **numbers}))
    assert encode_avro(pa.array([{"d": b"x"}]), schema).to_pylist() == [b"\2x"]
    with pytest.raises(InvalidRecordError, match="does not fit"):
        encode_avro(pa.array([{"d": Decimal("1.23")}]), schema)


def test_a_decimal_that_is_too_long_for_its_fixed_is_a_fixed_and_one_that_is_not_stays_a_decimal():
    kind = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal"}
    assert encode_avro(pa.array([b"ab"], pa.binary(2)), json.dumps({**kind, "precision": 5})).to_pylist() == [b"ab"]
    array = pa.array([Decimal("0.05")], pa.decimal128(4, 2))
    assert encode_avro(array, json.dumps({**kind, "precision": 4, "scale": 2})).to_pylist() == [b"\0\5"]


def test_a_name_that_its_namespace_lacks_is_looked_up_without_one():
    inner = record("In", "n", x=["null", "Top"], y="Enum")
    enum = {"type": "enum", "name": "Enum", "namespace": "", "symbols": ["A", "B"]}
    top = {**record("Top", inner=["null", inner]), "fields": [
        {"name": "e", "type": enum}, {"name": "inner", "type": ["null", inner]}
    ]}  # fmt: skip
    kind = pa.struct([("e", pa.string()), ("inner", pa.struct([("x", pa.null()), ("y", pa.string())]))])
    (value,) = encode_avro(pa.array([{"e": "B", "inner": {"x": None, "y": "B"}}], kind), json.dumps(top)).to_pylist()
    assert value == b"\2\2\0\2"


def test_a_name_of_its_own_namespace_precedes_one_without():
    schema = record("M", a=record("T", n="long"), b=record("In", "n", t=record("T", s="string"), again="T"))
    rows = [{"a": {"n": 1}, "b": {"t": {"s": "x"}, "again": {"s": "y"}}}]
    (value,) = encode_avro(pa.array(rows), json.dumps(schema)).to_pylist()
    assert value == b"\2\2x\2y"
    assert fastavro.parse_schema(schema)
