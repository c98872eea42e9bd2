"""One Arrow type as one Avro type: fastavro's bytes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink import encode_avro
from tests.unit.encoding.avro_referee import encoded, faults, mismatches, written


@pytest.mark.parametrize(
    ("schema", "array"),
    [
        ("boolean", pa.array([True, False, True])),
        ("int", pa.array([-128, 127], pa.int8())),
        ("int", pa.array([0, 65535], pa.uint16())),
        ("long", pa.array([2**32 - 1], pa.uint32())),
        ("float", pa.array([1.5, float("inf"), -0.0], pa.float32())),
        ("float", pa.array(np.array([1.5], np.float16))),
        ("double", pa.array([1.5, 1e-300, float("-inf")])),
        ("double", pa.array([float("nan")])),
        ("double", pa.array([0.1], pa.float32())),
        ("double", pa.array([2**53, -(2**63), 3])),
        ("float", pa.array([2**24, 2**62])),
        ("bytes", pa.array([b"", b"\xff\0", b"x" * 300])),
        ("string", pa.array(["", "é", "x" * 70_000, "漢字"])),
    ],
)
def test_value(schema, array):
    assert encoded(schema, array) == written(schema, array.to_pylist())


def test_strings_and_bytes_become_each_other():
    assert encoded("string", pa.array([b"bytes", "é".encode()])) == written("string", ["bytes", "é"])
    assert encoded("bytes", pa.array(["a", "é"])) == written("bytes", [b"a", "é".encode()])


INSTANTS = [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2024, 2, 29, 12, 0, 0, 123_456, UTC)]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_timestamps_round_down_to_milliseconds(unit):
    array = pa.array(INSTANTS, pa.timestamp(unit, tz="Europe/Berlin"))
    millis = [-1, 1709208000123]

    assert encoded({"type": "long", "logicalType": "timestamp-millis"}, array) == written("long", millis)
    assert encoded("long", array) == written("long", millis)


def test_timestamps_of_any_unit():
    for unit, instants in (("s", [0, -5]), ("ms", [1, -1]), ("us", [1, -1])):
        array = pa.array(instants, pa.timestamp(unit, tz="UTC"))
        per_second = {"s": 1, "ms": 10**3, "us": 10**6}[unit]
        for logical, wanted in (("timestamp-micros", 10**6), ("timestamp-nanos", 10**9)):
            expected = [each * (wanted // per_second) for each in instants]
            assert encoded({"type": "long", "logicalType": logical}, array) == written("long", expected)


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


def test_dates_and_times():
    days = [date(1969, 12, 31), date(2024, 2, 29)]
    schema = {"type": "int", "logicalType": "date"}
    assert encoded(schema, pa.array(days)) == written(schema, days)
    assert encoded(schema, pa.array(days, pa.date64())) == written(schema, days)
    assert encoded("int", pa.array(days)) == written("int", [-1, 19782])
    times = [time(0), time(23, 59, 59, 999_000)]
    for kind in (pa.time32("ms"), pa.time64("us"), pa.time64("ns")):
        for schema in ({"type": "int", "logicalType": "time-millis"}, {"type": "long", "logicalType": "time-micros"}):
            assert encoded(schema, pa.array(times, kind)) == written(schema, times)


def test_intervals_are_microseconds_as_sparks_are():
    assert encoded("long", pa.array([timedelta(days=-1, microseconds=7)])) == written("long", [-86_400_000_000 + 7])


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


def test_no_rows():
    assert encode_avro(pa.array([], pa.int64()), json.dumps("long")).to_pylist() == []
    assert encode_avro(pa.chunked_array([], pa.int64()), json.dumps("long")).to_pylist() == []
