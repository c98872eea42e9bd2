"""One Arrow type as one Avro type: fastavro's bytes. tests/properties has the types that a generator makes."""

from __future__ import annotations

import uuid
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.encoding.avro_referee import encoded, faults, mismatches, written


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
        "column type timestamp_ntz does not fit schema type long timestamp-micros: it has no time zone, cast it"
    ]
    assert mismatches(schema, pa.timestamp("us", "UTC")) == [
        "column type timestamp does not fit schema type long local-timestamp-micros: it has a time zone, cast it"
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


@pytest.mark.parametrize("schema", [UUID_STRING, UUID_FIXED])
def test_uuids_of_strings_and_of_bytes(schema):
    expected = written(UUID_STRING, IDS) if schema is UUID_STRING else [each.bytes for each in IDS]
    expected = [*expected[:1], None, *expected[1:]]
    texts = pa.array([str(IDS[0]), None, *map(str, IDS[1:])])
    data = pa.array([IDS[0].bytes, None, *(each.bytes for each in IDS[1:])], pa.binary(16))

    binary = (data, pa.ExtensionArray.from_storage(pa.uuid(), data)) if schema is UUID_FIXED else ()
    for array in (texts, *binary):
        assert encoded(schema, array) == expected
        assert encoded(schema, array[2:]) == expected[2:]
        assert encoded(schema, array[1:2]) == [None]
    if schema is UUID_FIXED:
        assert encoded(schema, pa.array([each.upper() for each in texts.to_pylist() if each])) == [
            each.bytes for each in IDS
        ]


@pytest.mark.parametrize("schema", [UUID_STRING, UUID_FIXED])
@pytest.mark.parametrize(
    "text", ["", "x", str(IDS[0])[:-1], str(IDS[0]) + "0", str(IDS[0]).replace("-", "0"), "g" * 36]
)
def test_strings_that_are_no_uuids(schema, text):
    assert faults(schema, pa.array([str(IDS[1]), None, text])) == [(2, "", f"{text!r} is not a UUID")]


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
