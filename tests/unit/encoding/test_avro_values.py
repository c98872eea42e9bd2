"""One Arrow type as one Avro type: fastavro's bytes. tests/properties has the types that a generator makes."""

from __future__ import annotations

from datetime import datetime

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
