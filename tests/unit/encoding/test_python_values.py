"""fastavro and protobuf change some Python values in writing: these are refused, the others decode unchanged."""

import datetime as dt
import json
import time
from io import BytesIO

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from spark_kafka_sink.encoding.avro_schema import AvroSchema
from spark_kafka_sink.encoding.python_values import AvroCheck, check_message
from tests.unit.encoding.protos import proto3, upb

NAIVE = dt.datetime(2026, 5, 4, 3, 2, 1, 123456)
AWARE = NAIVE.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))
MESSAGE = """message M {
  google.protobuf.Timestamp at = 1; float f = 2; double d = 3; repeated float floats = 4;
  map<string, M> by_name = 5; M inner = 6; int64 id = 7; repeated M inners = 8;
}"""


@pytest.fixture
def in_new_york(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def logical(kind, name):
    return {"type": kind, "logicalType": name}


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


MICROS, LOCAL = logical("long", "timestamp-micros"), logical("long", "local-timestamp-micros")
TREE = record(("at", MICROS), ("left", ["null", "R"]))


def problem(schema, value):
    """What is said of a value."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - compared by the caller
        AvroCheck(AvroSchema.parse(json.dumps(schema))).check(value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (MICROS, NAIVE, "2026-05-04T03:02:01.123456 has no time zone, so long timestamp-micros cannot hold it"),
        (LOCAL, AWARE, "2026-05-04T03:02:01.123456+05:00 has a time zone, which long local-timestamp-micros cannot"),
        (logical("int", "date"), NAIVE, "2026-05-04T03:02:01.123456 has a time of day, which int date cannot hold"),
        (logical("int", "time-millis"), dt.time(1, 2, 3, 4), "01:02:03.000004 has microseconds, which int time-millis"),
        ("float", 1e300, "1e+300 is too large for float"),
        pytest.param("float", 10**400, "is too large for float", id="10**400"),
        ("float", 2**24 + 1, "16777217 has more digits than float holds"),
        ("double", 2**53 + 1, "9007199254740993 has more digits than double holds"),
        (["null", MICROS], NAIVE, "has no time zone"),
        (record(("a", {"type": "array", "items": MICROS})), {"a": [AWARE, NAIVE]}, "a[]: 2026-05-04T03:02:01.123456 "),
        (record(("m", {"type": "map", "values": "float"})), {"m": {"x": -1e39}}, "m.value: -1e+39 is too large"),
        (TREE, {"at": AWARE, "left": {"at": NAIVE, "left": None}}, "left.at: 2026-05-04T03:02:01.123456 "),
        (["string", "float"], 1e39, "1e+39 is too large for float"),
        (["string", "float"], ("float", 1e39), "1e+39 is too large for float"),
        (["float", "double"], ("float", 1e39), "1e+39 is too large for float"),
        (["int", "double"], 2**53 + 1, "9007199254740993 has more digits than double holds"),
        ([logical("int", "date"), MICROS], AWARE, "has a time of day"),
        ([record(("a", "float")), record(("b", "string"), name="S")], {"a": 1e39}, "a: 1e+39 is too large for float"),
    ],
)  # fmt: skip
def test_a_value_that_fastavro_would_change_is_refused(schema, value, said):
    assert said in problem(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "decoded"),
    [
        (MICROS, AWARE, AWARE),
        (logical("long", "timestamp-millis"), AWARE, AWARE.replace(microsecond=123000)),
        (LOCAL, NAIVE, NAIVE),
        (MICROS, 5, dt.datetime(1970, 1, 1, 0, 0, 0, 5, dt.UTC)),
        (logical("int", "date"), NAIVE.date(), NAIVE.date()),
        (logical("int", "time-millis"), dt.time(1, 2, 3, 4000), dt.time(1, 2, 3, 4000)),
        (logical("long", "time-micros"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
        ("float", 2.0**127, 2.0**127),
        ("float", float("inf"), float("inf")),
        ("float", 2**24, 2.0**24),
        ("double", 1e300, 1e300),
        (["float", "double"], 1e300, 1e300),
        (["long", "double"], 2**53 + 1, 2**53 + 1),
        (["null", LOCAL], NAIVE, NAIVE),
        ([logical("int", "date"), "null", MICROS], NAIVE.date(), NAIVE.date()),
        (["null", TREE], {"at": AWARE, "left": None}, {"at": AWARE, "left": None}),
        ([record(("a", "float")), record(("a", "double"), ("b", "int"), name="S")], {"a": 1e300, "b": 1}, None),
    ],
)  # fmt: skip
def test_what_passes_decodes_to_what_came_in(in_new_york, schema, value, decoded):
    AvroCheck(AvroSchema.parse(json.dumps(schema))).check(value)
    written = BytesIO()
    parsed = parse_schema(schema)
    schemaless_writer(written, parsed, value)
    written.seek(0)
    assert schemaless_reader(written, parsed) == (value if decoded is None else decoded)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"at": NAIVE}, "at: 2026-05-04T03:02:01.123456 has no time zone, so google.protobuf.Timestamp cannot hold it"),
        ({"f": 1e300}, "f: 1e+300 is too large for float"),
        ({"d": 2**53 + 1}, "d: 9007199254740993 has more digits than double holds"),
        ({"floats": [1, 2**24 + 1]}, "floats[]: 16777217 has more digits than float holds"),
        ({"by_name": {"x": {"at": NAIVE}}}, "by_name.value.at: "),
        ({"inner": {"inners": [{}, {"at": NAIVE}]}}, "inner.inners[].at: "),
    ],
)
def test_a_value_that_protobuf_would_change_is_refused(values, said):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - compared below
        check_message(upb(proto3(MESSAGE)).DESCRIPTOR, values)
    assert said in str(raised.value)


def test_a_message_of_other_values_passes():
    message = upb(proto3(MESSAGE))
    values = {"at": AWARE, "f": 0.5, "floats": [1, 0.1], "inner": {"d": 1e300}, "inners": [message(id=1)], "id": 2**60}
    check_message(message.DESCRIPTOR, {**values, "by_name": {"x": message()}, "unknown": NAIVE})
    made = message(**values)
    assert made.at.ToDatetime(dt.UTC) == AWARE
    assert (made.inner.d, made.id) == (1e300, 2**60)
