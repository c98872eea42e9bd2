"""``json_column``: rows that could not be encoded, as JSON in their dead letters."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from spark_kafka_sink.spark.dead_letters.record import json_column

_NESTED = pa.struct([("a", pa.struct([("b", pa.int32())])), ("c", pa.list_(pa.string()))])


def texts(array: pa.Array) -> list[str | None]:
    return [None if each is None else each.decode() for each in json_column(array).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.string(), 'ü "100 %"\n', '"\\u00fc \\"100 %\\"\\n"'),
        (pa.large_string(), "null", '"null"'),
        (pa.int64(), -(2**62), str(-(2**62))),
        (pa.uint64(), 2**64 - 1, str(2**64 - 1)),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), 0.5, "0.5"),
        (pa.bool_(), True, "true"),
        (pa.binary(), b"\0\1", '"AAE="'),
        (pa.decimal128(5, 2), Decimal("1.50"), '"1.50"'),
        (pa.date32(), dt.date(2026, 1, 2), '"2026-01-02"'),
        (pa.list_(pa.int32()), [1, None], "[1,null]"),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], '[["a",1]]'),
        (pa.struct([("50 %s", pa.string())]), {"50 %s": "%d"}, '{"50 %s":"%d"}'),
        (_NESTED, {"a": {"b": 1}, "c": ["x"]}, '{"a":{"b":1},"c":["x"]}'),
        (_NESTED, {"a": None, "c": None}, '{"a":null,"c":null}'),
        (pa.struct([]), {}, "{}"),
    ],
    ids=str,
)
def test_a_value_is_json_and_null_is_null(kind: pa.DataType, value: object, text: str) -> None:
    rows = pa.array([None, value, None, value], kind)
    assert texts(rows) == [None, text, None, text]
    assert texts(rows.slice(1, 2)) == [text, None]
    assert texts(rows.slice(0, 0)) == []
    in_struct = pa.StructArray.from_arrays([rows], ["f"])
    assert texts(in_struct) == [f'{{"f":{each or "null"}}}' for each in texts(rows)]


def test_fields_under_a_null_struct_do_not_show() -> None:
    fields = pa.array([1, 2], pa.int32())
    validity = pa.py_buffer(b"\2")
    rows = pa.StructArray.from_buffers(pa.struct([("f", pa.int32())]), 2, [validity], children=[fields])
    assert texts(rows) == [None, '{"f":2}']


def test_a_date_that_python_lacks_is_a_row_of_arrow() -> None:
    days = pa.array([0, 10_000_000], pa.int32()).cast(pa.date32())
    first, second = texts(pa.StructArray.from_arrays([days], ["day"]))
    assert first == '{"day":"1970-01-01"}'
    assert second is not None
    assert list(json.loads(second)) == ["arrow"]
