"""What fits a field, what only data can show, and the same messages from every Arrow layout."""

import pickle
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink import encode_protobuf
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.schemas.encoding.encoder import SchemaMismatchError
from spark_kafka_sink.schemas.encoding.protobuf import plan_protobuf
from spark_kafka_sink.schemas.encoding.protobuf_fields import NO_ELEMENT
from tests.unit.encoding.protos import compiled, faults, proto2, proto3, struct, upb

NUMBERS = proto3(
    """
    message M {
      int32 int32 = 1; uint32 uint32 = 2; fixed64 fixed64 = 3; float float = 4; double double = 5; bool bool = 6;
      string string = 7; bytes bytes = 8; google.protobuf.Timestamp at = 9; google.protobuf.Int32Value wrapped = 10;
      enum E { ZERO = 0; } E enum = 11;
    }
    """
)
FITS = {
    "float": [pa.uint16()],
    "double": [pa.float16(), pa.uint32()],
    "wrapped": [pa.int16(), pa.struct({"value": pa.int32()})],
    "enum": [pa.uint16()],
}
"""Besides those that tests/properties writes."""

NARROWS = {
    "int32": [pa.uint32(), pa.int64(), pa.uint64()],
    "uint32": [pa.uint64()],
    "float": [pa.float64(), pa.int32(), pa.uint32()],
    "double": [pa.int64(), pa.uint64()],
    "wrapped": [pa.int64()],
}
DOES_NOT_FIT = {
    "int32": [pa.bool_(), pa.float32(), pa.decimal128(5, 0), pa.date32(), pa.string()],
    "double": [pa.decimal128(10, 2), pa.string()],
    "bool": [pa.int8()],
    "string": [pa.int32(), pa.list_(pa.string())],
    "at": [pa.date32(), pa.int64(), pa.duration("s"), pa.timestamp("us")],
    "enum": [pa.int64(), pa.uint32(), pa.float64()],
}


def each(table: dict[str, list[pa.DataType]]) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name, kinds in table.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), each(FITS), ids=str)
def test_a_type_that_holds_all_values_fits(name, kind):
    plan_protobuf(NUMBERS, "M", pa.struct({name: kind}))


@pytest.mark.parametrize(("name", "kind"), each(NARROWS), ids=str)
def test_a_type_that_would_narrow_is_a_mismatch(name, kind):
    with pytest.raises(
        SchemaMismatchError, match=rf"^{name}: column type \w+ would narrow to Protobuf type \w+: cast it$"
    ):
        plan_protobuf(NUMBERS, "M", pa.struct({name: kind}))


@pytest.mark.parametrize(("name", "kind"), each(DOES_NOT_FIT), ids=str)
def test_another_type_is_a_mismatch(name, kind):
    with pytest.raises(SchemaMismatchError, match=rf"^{name}: column type .+ does not fit Protobuf type "):
        plan_protobuf(NUMBERS, "M", pa.struct({name: kind}))


def test_two_columns_of_one_name_are_a_mismatch():
    with pytest.raises(SchemaMismatchError, match=r"^int32: 2 columns have this name$"):
        plan_protobuf(NUMBERS, "M", pa.struct([("int32", pa.int32()), ("int32", pa.int32())]))


def test_rows_of_enums_that_are_not_in_the_schema():
    schema = proto2("message M { enum E { A = 0; B = 2; } optional E name = 1; repeated E numbers = 2; }")
    array = struct(
        name=pa.array(["A", "C", None, "B", "a"]),
        numbers=pa.array([[0, 2], [], None, [2, 1], []], pa.list_(pa.int32())),
    )
    assert faults(array, schema) == [
        (1, "name", "'C' is not a symbol of enum M.E"),
        (3, "numbers[]", "1 is not a number of enum M.E"),
        (4, "name", "'a' is not a symbol of enum M.E"),
    ]


def test_an_open_enum_takes_any_number():
    schema = proto3("message M { enum E { A = 0; } E e = 1; }")
    encoded = encode_protobuf(struct(e=pa.array([-7], pa.int32())), schema, "M")
    assert upb(schema).FromString(encoded[0].as_py()).e == -7


def test_rows_with_two_columns_of_a_oneof():
    schema = proto3("message M { oneof contact { string mail = 1; int64 phone = 2; In in = 3; } message In {} }")
    array = struct(mail=pa.array(["a", None, "", None]), phone=pa.array([None, 1, 0, None]))
    assert faults(array, schema) == [
        (2, "contact", "{'mail': '', 'phone': 0} has more than one column of a oneof that is not null")
    ]


def test_rows_with_times_beyond_their_types():
    schema = proto3("message M { google.protobuf.Timestamp at = 1; google.protobuf.Duration took = 2; }")
    first, last = -62_135_596_800, 253_402_300_799
    array = struct(
        at=pa.array([first, first - 1, None, last, last + 1], pa.timestamp("s", "UTC")),
        took=pa.array([315_576_000_000, None, -315_576_000_001, -315_576_000_000, 0], pa.duration("s")),
    )
    assert [(row, path, text[text.index(" is ") :]) for row, path, text in faults(array, schema)] == [
        (1, "at", " is not in the years 0001 to 9999 of a Timestamp"),
        (2, "took", " is longer than the 10,000 years of a Duration"),
        (4, "at", " is not in the years 0001 to 9999 of a Timestamp"),
    ]


def test_rows_with_a_key_twice():
    schema = proto3("message M { map<string, int32> m = 1; }")
    array = struct(
        m=pa.array([[("a", 1), ("b", 1)], [("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
    )
    assert faults(array, schema) == [(2, "m", "'a' is twice in the map: a reader would keep one of them")]


def test_rows_out_of_range_within_lists_and_maps_name_the_row_of_the_column():
    schema = proto3(
        "message M { repeated In list = 1; map<uint32, In> map = 2; } message In { repeated uint64 n = 1; }"
    )
    items = pa.struct({"n": pa.list_(pa.int64())})
    kind = pa.struct({"list": pa.list_(items), "map": pa.map_(pa.int32(), items)})
    rows = [{"list": [{"n": [1]}, {"n": None}], "map": [(1, {"n": [5]})]}] * 10_000
    rows[9_000] = {"list": [{"n": []}, {"n": [1, 2, -3]}], "map": []}
    rows[9_001] = {"list": None, "map": [(1, {}), (2, {"n": [-1]})]}
    assert faults(pa.array(rows, kind), schema) == [
        (9_000, "list[].n[]", "-3 is out of range for uint64"),
        (9_001, "map.value.n[]", "-1 is out of range for uint64"),
    ]


def test_incident_null_elements_of_lists_and_maps_vanished():
    schema = proto3("message M { repeated M list = 1; map<string, int32> map = 2; repeated int32 packed = 3; }")
    items = pa.list_(pa.struct({"packed": pa.list_(pa.int32())}))
    kind = pa.struct({"list": items, "map": pa.map_(pa.string(), pa.int32()), "packed": pa.list_(pa.int32())})
    rows = [
        {"list": [{"packed": [1]}, None]},
        {"list": [{"packed": None}], "map": None, "packed": [0, 1]},
        {"list": [{"packed": [1, None]}], "packed": [2, 3]},
        {"map": [("a", 1), ("b", None)]},
        {"packed": [None, 1]},
    ]
    found = [(0, "list[]"), (2, "list[].packed[]"), (3, "map.value"), (4, "packed[]")]
    refused = [(row, path, f"null {NO_ELEMENT}") for row, path in found]
    assert faults(pa.array(rows, kind), schema) == refused
    assert faults(pa.array([None, *rows], kind)[2:], schema) == [(row - 1, *rest) for row, *rest in refused[1:]]
    untyped = struct(list=pa.array([[None], []], pa.list_(pa.null())))
    assert faults(untyped, schema) == refused[:1]
    elements, mask = pa.array([None, 1], pa.int32()), pa.array([True, False])
    behind_null = pa.LargeListArray.from_arrays([0, 1, 2], elements, mask=mask)
    assert encode_protobuf(struct(packed=behind_null), schema, "M").to_pylist() == [b"", b"\x1a\x01\x01"]


def test_bytes_of_strings_that_are_not_utf_8_are_a_fault_also_in_a_string_column():
    schema = proto3("message M { string s = 1; }")
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xc3"]).buffers())
    assert faults(struct(s=broken), schema) == [(0, "s", "b'\\xc3' is not UTF-8, and a Protobuf string is")]


def test_features_of_editions():
    schema = compiled(
        """
        edition = "2023";
        message M {
          int32 explicit = 1; int32 implicit = 2 [features.field_presence = IMPLICIT];
          int32 required = 3 [features.field_presence = LEGACY_REQUIRED]; repeated int32 packed = 4;
          repeated int32 expanded = 5 [features.repeated_field_encoding = EXPANDED];
          E closed = 6; M delimited = 7 [features.message_encoding = DELIMITED];
        }
        enum E { option features.enum_type = CLOSED; ONE = 1; }
        """
    )
    row = {"explicit": 0, "implicit": 0, "required": 0, "packed": [0, 1], "expanded": [0, 1], "closed": 1}
    integers = ["explicit", "implicit", "required", "closed"]
    kind = {name: pa.int32() if name in integers else pa.list_(pa.int32()) for name in row}
    encoded = encode_protobuf(pa.array([row], pa.struct(kind)), schema, "M").to_pylist()
    assert encoded == [upb(schema)(**row).SerializeToString()]
    assert faults(struct(required=pa.array([None, 1], pa.int32()), closed=pa.array([1, 5], pa.int32())), schema) == [
        (0, "required", "null is not allowed: the field is required"),
        (1, "closed", "5 is not a number of enum E"),
    ]
    with pytest.raises(SchemaMismatchError, match=r"^delimited: Protobuf groups cannot be written"):
        plan_protobuf(schema, "M", pa.struct({"required": pa.int32(), "delimited": pa.struct([])}))


# The same values in every Arrow layout: the same messages.

SCHEMA = proto3(
    """
    message M {
      optional string name = 1; repeated int32 numbers = 2; map<string, In> ins = 3; In in = 4; repeated In list = 5;
      optional int64 id = 6; enum Color { RED = 0; BLUE = 5; } repeated Color colors = 7; repeated bool flags = 8;
    }
    message In { string name = 1; repeated string names = 2; google.protobuf.Timestamp at = 3; }
    """
)


def messages(array: pa.Array, descriptor_set: bytes = SCHEMA) -> list:
    encoded = encode_protobuf(array, descriptor_set, "M").to_pylist()
    return [None if each is None else upb(descriptor_set).FromString(each) for each in encoded]


def test_a_null_parent_may_span_slots():
    names = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), pa.array(["a", "b", "c", "d"]))
    inner = pa.StructArray.from_arrays(
        [pa.array(["x", "y", "z"]), names], ["name", "names"], mask=pa.array([False, True, False])
    )
    outer = pa.StructArray.from_arrays([inner, pa.array([5, 6, 7])], ["in", "id"], mask=pa.array([False, False, True]))
    first, second, third = messages(outer)
    assert (getattr(first, "in").name, list(getattr(first, "in").names), first.id) == ("x", ["a"], 5)
    assert (second.HasField("in"), second.id) == (False, 6)
    assert third is None


def test_null_types_are_absent_everywhere():
    array = struct(
        name=pa.nulls(2),
        numbers=pa.array([[], None], pa.list_(pa.null())),
        ins=pa.array([[], None], pa.map_(pa.string(), pa.null())),
        list=pa.nulls(2),
    )
    assert [each.ByteSize() for each in messages(array)] == [0, 0]


def mebibytes(rows: int) -> pa.Array:
    """Views of one buffer."""
    views = np.zeros((rows, 4), np.int32)
    views[:, 0] = 1 << 20
    return pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(views), pa.py_buffer(bytes(1 << 20))])


def test_large_rows_are_encoded_in_smaller_slices():
    schema = proto3("message M { bytes data = 1; int64 id = 2; }")
    array = struct(data=mebibytes(150), id=pa.array(range(150), pa.int64()))
    encoded = encode_protobuf(array, schema, "M")
    assert [upb(schema).FromString(encoded[row].as_py()).id for row in (0, 74, 149)] == [0, 74, 149]


def test_a_row_of_more_than_2_gib_is_an_error():
    schema = proto3("message M { repeated bytes data = 1; }")
    array = struct(
        data=pa.ListViewArray.from_arrays(pa.array([0], pa.int32()), pa.array([2049], pa.int32()), mebibytes(2049))
    )
    with pytest.raises(InvalidRecordError, match=r"^the encoded row would take more than 2 GiB$"):
        encode_protobuf(array, schema, "M")


def test_a_column_that_is_no_struct_is_an_error():
    with pytest.raises(SchemaMismatchError, match=r"^column type string does not fit message M: give a struct$"):
        plan_protobuf(SCHEMA, "M", pa.string())


def test_required_fields_of_an_absent_message_are_not_asked_for():
    schema = proto2("message M { optional In in = 1; } message In { required int32 x = 1; }")
    kind = pa.struct({"in": pa.struct({"x": pa.int32()})})
    assert encode_protobuf(pa.array([{"in": None}, {"in": {"x": 0}}], kind), schema, "M").to_pylist() == [
        b"",
        b"\x0a\x02\x08\x00",
    ]


# Faults and mismatches, all of them at once.


def test_a_pickled_encoder_works_where_protobuf_is_not_installed(tmp_path):
    plan = tmp_path / "plan"
    plan.write_bytes(
        pickle.dumps(plan_protobuf(proto3("message M { int64 id = 1; }"), "M", pa.struct([("id", pa.int64())])))
    )
    program = (
        "import pickle, sys; sys.modules['google.protobuf'] = None\n"
        "encoder = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "import pyarrow as pa; print(encoder.encode(pa.array([{'id': 5}], encoder.kind)).to_pylist())\n"
        "from spark_kafka_sink import encode_protobuf\n"
        "encode_protobuf(pa.array([{'id': 5}]), b'', 'M')"
    )
    done = subprocess.run([sys.executable, "-c", program, plan], capture_output=True, text=True, check=False)
    assert done.stdout == "[b'\\x08\\x05']\n"
    assert "pip install protobuf" in done.stderr.splitlines()[-1]


def test_incident_a_decimal_was_refused_for_uint64_which_spark_reads_as_one():
    schema = proto3("message M { uint64 a = 1; repeated fixed64 b = 2; google.protobuf.UInt64Value c = 3; }")
    large = [Decimal(2**63), Decimal(2**64 - 1), Decimal(-1), Decimal(2**64)]
    kind = pa.struct([("a", pa.decimal128(20)), ("b", pa.list_(pa.decimal128(20))), ("c", pa.decimal128(20))])
    rows = pa.array([{}, {"a": large[1], "b": large[:2], "c": large[0]}, {"a": None, "b": []}], kind)[1:]
    wanted = upb(schema)(a=2**64 - 1, b=[2**63, 2**64 - 1], c={"value": 2**63})
    assert encode_protobuf(rows, schema, "M").to_pylist() == [wanted.SerializeToString(), b""]
    said = [(0, "a", "-1 is out of range for uint64"), (1, "b[]", f"{2**64} is out of range for fixed64")]
    assert faults(pa.array([{"a": large[2]}, {"b": large[3:]}], kind), schema) == said


def test_all_mismatches_are_named():
    schema = compiled(
        """
        syntax = "proto2";
        message M {
          required int64 id = 1; optional string name = 4;
          repeated bool flags = 5; optional group G = 6 { optional int32 x = 1; } optional In in = 7;
          map<string, int32> counts = 9;
        }
        message In { required string line = 1; }
        """
    )
    kind = pa.struct(
        {
            "name": pa.decimal128(10, 2),
            "flags": pa.bool_(),
            "g": pa.struct({"x": pa.int32()}),
            "in": pa.struct({"lines": pa.string()}),
            "counts": pa.map_(pa.int32(), pa.int32()),
            "other": pa.int32(),
        }
    )
    with pytest.raises(SchemaMismatchError) as raised:
        plan_protobuf(schema, "M", kind)
    assert raised.value.mismatches == (
        "name: column type decimal(10,2) does not fit Protobuf type string",
        "flags: column type boolean does not fit Protobuf type repeated bool",
        "g: Protobuf groups cannot be written (M.G): leave the column out",
        "in.lines: In has no such field (string)",
        "in.line: no such column, and In requires the field",
        "counts.key: column type int does not fit Protobuf type string",
        "other: M has no such field (int)",
        "id: no such column, and M requires the field",
    )
