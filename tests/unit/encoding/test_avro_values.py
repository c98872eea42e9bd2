"""One Arrow type as one Avro type: fastavro's bytes. tests/properties has the types that a generator makes."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrays import undecodable
from spark_kafka_sink.schemas.encoding import columns as slices
from spark_kafka_sink.schemas.encoding.avro import encode_avro, plan_avro
from spark_kafka_sink.schemas.encoding.encoder import RowWriter, SchemaMismatchError
from tests.unit.encoding.avro_referee import encoded, faults, mismatches, record, struct, written


@pytest.mark.parametrize(
    ("schema", "array"),
    [
        ("int", pa.array([0, 65535], pa.uint16())),
        ("float", pa.array(np.array([1.5], np.float16))),
        ("double", pa.array([float("nan")])),
        ("double", pa.array([2**53, -(2**63), 3])),
        ("float", pa.array([2**24, 2**62])),
        ("string", pa.array(["", "é", "x" * 70_000, "漢字"])),
    ],
)
def test_values_that_the_generator_does_not_make(schema, array):
    assert encoded(schema, array) == written(schema, array.to_pylist())


def test_timestamps_without_a_time_zone_are_local():
    array = pa.array([datetime(2024, 2, 29, 12, 0, 0, 123_456)])
    schema = {"type": "long", "logicalType": "local-timestamp-micros"}

    assert encoded(schema, array) == written(schema, array.to_pylist())
    assert mismatches({"type": "long", "logicalType": "timestamp-micros"}, array.type) == [
        "column type timestamp_ntz does not fit schema type long timestamp-micros: it has no time zone: cast it"
    ]
    assert mismatches(schema, pa.timestamp("us", "UTC")) == [
        "column type timestamp does not fit schema type long local-timestamp-micros: it has a time zone: cast it"
    ]


def test_what_a_type_does_not_hold():
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    array = pa.array([1000, 1001, None, 7], pa.timestamp("ns", tz="UTC"))
    assert [each[:2] for each in faults(micros, array)] == [(1, ""), (3, "")]
    seconds = pa.array([2**60], pa.timestamp("s", tz="UTC"))
    assert faults(micros, seconds) == [(0, "", f"{2**60} does not fit long timestamp-micros")]
    assert faults("double", pa.array([2**53 + 1, 1, 2**63 - 1])) == [
        (0, "", "9007199254740993 has more digits than double holds"),
        (2, "", "9223372036854775807 has more digits than double holds"),
    ]
    assert faults("float", pa.array([2**24 + 1])) == [(0, "", "16777217 has more digits than float holds")]
    assert faults("string", pa.array([b"ok", b"\xff", None, b"\xc3"])) == [
        (1, "", "b'\\xff' is not UTF-8"),
        (3, "", "b'\\xc3' is not UTF-8"),
    ]


def test_a_character_that_two_slots_share_is_not_utf8():
    assert [row for row, _, _ in faults("string", pa.array([b"\xc3", b"\xa9"]))] == [0, 1]


# Decimals, UUIDs, enums and fixed: fastavro's bytes, or Java's where fastavro takes more than it needs.

ENUM = {"type": "enum", "name": "Color", "symbols": ["red", "green", "blue"]}
FIXED = {"type": "fixed", "name": "F", "size": 3}
UUID_FIXED = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
UUID_STRING = {"type": "string", "logicalType": "uuid"}


def decimal(precision, scale, size=None):
    name = {"type": "bytes"} if size is None else {"type": "fixed", "name": "Dec", "size": size}
    return {**name, "logicalType": "decimal", "precision": precision, "scale": scale}


def java_bytes(number):
    """``BigInteger.toByteArray``: fastavro takes a byte more for -128, -32768, …"""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(
    "number", [-128, 127, 128, -129, -(2**15), -(2**63), 2**63, 2**64, -(2**64), -(2**71), 2**71 - 1]
)
def test_decimals_at_the_edge_of_a_byte(number):
    assert encoded(decimal(30, 0), pa.array([Decimal(number)], pa.decimal128(30, 0)))[0][1:] == java_bytes(number)


def test_decimals_that_lose_digits():
    array = pa.array([Decimal("99.99"), Decimal("100.00"), None, Decimal("-100.00"), Decimal("-99.99")])

    assert faults(decimal(4, 2), array.cast(pa.decimal128(10, 2))) == [
        (1, "", "100.00 does not fit bytes decimal(4, 2)"),
        (3, "", "-100.00 does not fit bytes decimal(4, 2)"),
    ]
    assert faults(decimal(20, 2), pa.array([Decimal(10**18), 10**17], pa.decimal128(30, 2)))[0][0] == 0
    assert mismatches(decimal(10, 1), pa.decimal128(5, 2)) == [
        "column type decimal(5,2) does not fit schema type bytes decimal(10, 1)"
    ]
    assert mismatches(decimal(10, 1), pa.int64()) == [
        "column type bigint does not fit schema type bytes decimal(10, 1)"
    ]


IDS = [uuid.UUID(int=0), uuid.UUID("12345678-9abc-def0-1234-56789abcdef0"), uuid.UUID(int=2**128 - 1)]


def test_uuids_of_strings_and_of_bytes():
    texts = pa.array([str(IDS[0]), None, *map(str, IDS[1:])])
    data = pa.array([IDS[0].bytes, None, *(each.bytes for each in IDS[1:])], pa.binary(16))

    ids = pa.ExtensionArray.from_storage(pa.uuid(), data)
    for schema, array, expected in (
        (UUID_STRING, texts, written(UUID_STRING, IDS)),
        *((UUID_FIXED, each, [one.bytes for one in IDS]) for each in (data, ids)),
    ):
        assert encoded(schema, array) == [expected[0], None, *expected[1:]]
        assert encoded(schema, array[2:]) == expected[1:]
        assert encoded(schema, array[1:2]) == [None]
    assert mismatches(UUID_FIXED, pa.string()) == [
        "column type string does not fit schema type fixed U(16) uuid: give its bytes, unhex(replace(…, '-', ''))"
    ]


@pytest.mark.parametrize(
    "text", ["", "x", str(IDS[0])[:-1], str(IDS[0]) + "0", str(IDS[0]).replace("-", "0"), "g" * 36]
)
def test_strings_that_are_no_uuids(text):
    assert faults(UUID_STRING, pa.array([str(IDS[1]), None, text])) == [(2, "", f"{text!r} is not a UUID")]


def test_enums():
    symbols = ["blue", "red", "green"]
    for array in (pa.array(symbols), pa.array(symbols).dictionary_encode(), pa.array(symbols, pa.large_string())):
        assert encoded(ENUM, array) == written(ENUM, symbols)
    assert faults(ENUM, pa.array(["red", "purple", None, "Red"])) == [
        (1, "", "'purple' is not a symbol of enum Color: red, green, blue"),
        (3, "", "'Red' is not a symbol of enum Color: red, green, blue"),
    ]


def test_fixed():
    values = [b"abc", b"\0\0\0"]
    for kind in (pa.binary(3), pa.binary(), pa.large_binary(), pa.binary_view()):
        assert encoded(FIXED, pa.array(values, kind)) == values
        assert encoded(FIXED, pa.array([None, *values], kind)) == [None, *values]
    assert faults(FIXED, pa.array([b"abc", b"ab", None, b""])) == [
        (1, "", "b'ab' does not have the 3 bytes of fixed F(3)"),
        (3, "", "b'' does not have the 3 bytes of fixed F(3)"),
    ]
    assert faults(FIXED, pa.array([b"abcd"], pa.binary(4)))[0][2] == "b'abcd' does not have the 3 bytes of fixed F(3)"


# Records, arrays, maps and unions, in every layout that Arrow has.

INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "n", "type": "long"}, {"name": "t", "type": ["string", "null"]}],
}


def test_values_under_a_null_parent_are_left_out():
    """Arrow allows slots of a null row to span values, at every depth."""
    lists = pa.array([["hidden"], ["a"], ["hidden", "too"], []])
    texts = pa.array(["hidden", "b", "hidden", "c"])
    maps = pa.array([[("hidden", 1)], [("k", 1)], [("hidden", 1), ("hidden", 2)], []], pa.map_(pa.string(), pa.int64()))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3, 4], pa.int32()), texts)
    inner = pa.StructArray.from_arrays(
        [lists, texts, maps, runs], names=["l", "t", "m", "e"], mask=pa.array([True, False, True, False])
    )
    types = {
        "l": {"type": "array", "items": "string"},
        "t": "string",
        "m": {"type": "map", "values": "long"},
        "e": "string",
    }
    schema = record(i=["null", {**record(**types), "name": "I"}])
    rows = [None, {"l": ["a"], "t": "b", "m": {"k": 1}, "e": "b"}, None, {"l": [], "t": "c", "m": {}, "e": "c"}]

    assert encoded(schema, struct(i=inner)) == written(schema, [{"i": each} for each in rows])
    outer = pa.StructArray.from_arrays([inner], names=["i"], mask=pa.array([False, True, False, False]))
    assert encoded(schema, outer) == [
        each if row != 1 else None for row, each in enumerate(encoded(schema, struct(i=inner)))
    ]


RUNS = pa.run_end_encoded(pa.int32(), pa.int64())
UNDECODABLE = {
    "[]": (pa.list_(RUNS), "run_end_encoded<run_ends: int32, values: int64> cannot be encoded: call run_end_decode"),
    "m.key": (pa.struct([("m", pa.map_(pa.run_end_encoded(pa.int32(), pa.string()), pa.int64()))]), "run_end_decode"),
    "m.value.x": (pa.struct([("m", pa.map_(pa.string(), pa.struct([("x", RUNS)])))]), "run_end_decode"),
    "l": (pa.struct([("l", pa.run_end_encoded(pa.int32(), pa.list_(pa.int64())))]), "run_end_decode"),
    "v": (pa.struct([("v", pa.run_end_encoded(pa.int32(), pa.string_view()))]), "run_end_decode"),
    "d": (pa.struct([("d", pa.dictionary(pa.int8(), pa.struct([("x", pa.int64())])))]), "dictionary_decode"),
    "e": (pa.struct([("e", pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), pa.string())))]), "run_end_decode"),
}  # fmt: skip


@pytest.mark.parametrize("path", UNDECODABLE)
def test_a_layout_that_arrow_does_not_decode_is_a_mismatch(path):
    """Some of Arrow's functions end the process for slices of these."""
    kind, said = UNDECODABLE[path]
    assert re.search(rf"^{re.escape(path)}: .*{re.escape(said)}$", *undecodable(kind))
    schema = {"type": "array", "items": "long"}
    with pytest.raises(SchemaMismatchError, match=r"^\[\]: run_end_encoded"):
        encode_avro(pa.nulls(5, pa.list_(RUNS))[2:], json.dumps(schema))


def test_run_ends_in_structs_and_dictionaries_in_maps():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([5, None]))
    keys = pa.array(["a", "b", "a"]).dictionary_encode()
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["x", "y" * 20], pa.string_view()))
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 1, 3, 3], pa.int32()), keys, values)
    schema = record(n=["null", "long"], m={"type": "map", "values": "string"})
    rows = [{"n": 5, "m": {"a": "x"}}, {"n": 5, "m": {}}, {"n": None, "m": {"b": "y" * 20, "a": "y" * 20}}]
    array = struct(n=runs, m=maps)
    assert encoded(schema, array[:3]) == written(schema, rows)
    assert encoded(schema, array[2:3]) == written(schema, rows[2:])


def test_a_column_of_nulls():
    assert encoded(record(x=["long", "null"], y="null"), struct(x=pa.nulls(2), y=pa.nulls(2))) == [b"\2"] * 2
    assert encoded("long", pa.array([None, None], pa.int64())) == [None, None]
    assert mismatches("long", pa.null()) == ["column type void does not fit schema type long"]


def test_faults_name_the_path_within_lists_and_maps():
    schema = record(
        a={"type": "array", "items": {"type": "array", "items": "long"}}, m={"type": "map", "values": INNER}
    )
    rows = [
        {"a": [[1], []], "m": [("k", {"n": 1, "t": None})]},
        {"a": [[], [1, None]], "m": [("k", {"n": None, "t": None})]},
        {"a": [None], "m": []},
        {"a": [], "m": [("k", {"n": 1, "t": "t"}), ("l", None)]},
        {"a": [], "m": [("k", {"n": None, "t": "t"})]},
        {"a": [], "m": [("k", {"n": 1, "t": "t"}), ("k", {"n": 1, "t": "t"})]},
    ]
    kind = pa.struct([("a", pa.list_(pa.list_(pa.int64()))), ("m", pa.map_(pa.string(), INNER_KIND))])

    assert faults(schema, pa.array(rows, kind)) == [
        (1, "a[][]", "null is not allowed: the schema says long, without null"),
        (2, "a[]", "null is not allowed: the schema says array of long, without null"),
        (3, "m.value", "null is not allowed: the schema says record Inner, without null"),
        (4, "m.value.n", "null is not allowed: the schema says long, without null"),
        (5, "m", "'k' is twice in the map: a reader would keep one of them"),
    ]


def test_unions():
    schema = record(u=["null", "string", INNER], v=["Inner", "string", "null"])
    array = struct(u=pa.array(["a", None]), v=pa.array([{"n": 1, "t": None}, None], INNER_KIND))
    assert encoded(schema, array) == written(schema, [{"u": "a", "v": {"n": 1, "t": None}}, {"u": None, "v": None}])
    assert encoded(["long", "string"], pa.array([1])) == written(["long", "string"], [1])
    assert encoded(["string"], pa.array(["a", None])) == [*written(["string"], ["a"]), None]
    assert faults(record(x=["long", "string"]), struct(x=pa.array([1, None]))) == [
        (1, "x", "null is not allowed: the schema says [long, string], without null")
    ]


def test_incident_sparks_struct_of_a_union_was_refused():
    lists = {"type": "array", "items": "string"}
    kind = pa.struct([("member0", pa.int64()), ("member1", INNER_KIND), ("member2", pa.list_(pa.string()))])
    given = [5, {"n": 1, "t": "x"}, ["a"], None, ["b"]]
    rows = [{"member0": 5}, {"member1": {"n": 1, "t": "x"}}, {"member2": ["a"]}, None, {"member2": ["b"]}]
    schema = record(u=["long", "null", INNER, lists])
    assert encoded(schema, struct(u=pa.array(rows, kind))[1:]) == written(schema, [{"u": each} for each in given])[1:]
    bad = pa.array([*rows[:3], {}, {"member0": 1, "member2": []}], kind)
    said = " does not have one value for [long, record Inner, array of string]"
    assert [(row, text.endswith(said)) for row, _, text in faults(["long", INNER, lists], bad)] == [
        (3, True),
        (4, True),
    ]


def test_incident_empty_arrays_without_a_type_were_refused():
    schema = record(a={"type": "array", "items": "string"}, m={"type": "map", "values": "long"})
    kinds = [("a", pa.list_(pa.null())), ("m", pa.map_(pa.string(), pa.null()))]
    assert encoded(schema, pa.array([{"a": [], "m": []}] * 2, pa.struct(kinds))) == [b"\0\0"] * 2
    assert faults(schema, pa.array([{"a": [], "m": []}, {"a": [None], "m": []}], pa.struct(kinds))) == [
        (1, "a[]", "null is not allowed: the schema says string, without null")
    ]


def test_a_union_of_more_than_64_branches():
    names = [{"type": "enum", "name": f"E{n}", "symbols": ["a"]} for n in range(70)]
    schema = record(x=[*names, "long", "null"])

    assert encoded(schema, struct(x=pa.array([5, None]))) == written(schema, [{"x": 5}, {"x": None}])


INNER_KIND = pa.struct([("n", pa.int64()), ("t", pa.string())])


def test_an_encoder_takes_other_layouts_of_its_type_and_no_other_type():
    encoder = plan_avro('"string"', pa.string())

    assert encoder.encode(pa.array(["a"], pa.large_string())).to_pylist() == [b"\2a"]
    with pytest.raises(InvalidRecordError, match="the encoder was planned for string, but the column is bigint"):
        encoder.encode(pa.array([1]))


def test_more_than_an_arrow_array_holds(monkeypatch):
    monkeypatch.setattr(slices, "_SLICE_ROWS", 2)

    with pytest.raises(InvalidRecordError, match="more than 2 GiB: take fewer rows at once"):
        plan_avro('"string"', pa.string()).encode(pa.array(["abc"] * 5), most=10)


def test_more_items_than_offsets_can_count():
    with pytest.raises(
        InvalidRecordError, match="268435456 items, and at most 268435455 can be encoded at once: encode fewer"
    ):
        RowWriter(1 << 28)
