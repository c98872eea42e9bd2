"""``json_column``: rows that could not be encoded, as JSON in their dead letters. tests/spark asks Spark, too."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_kafka_sink.spark.encode_formats import json_column

_NESTED = pa.struct([("a", pa.struct([("b", pa.int32())])), ("c", pa.list_(pa.string()))])
_SUMMER = 1_782_000_000_123_456


def texts(array: pa.Array) -> list[str | None]:
    return [None if each is None else each.decode() for each in json_column(array).to_pylist()]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.large_string(), "null", '"null"'),
        (pa.map_(pa.list_(pa.int8()), pa.bool_()), [([1], True)], '{"[1]":true}'),
        (pa.struct([("50 %s", pa.string())]), {"50 %s": "%d"}, '{"50 %s":"%d"}'),
        (_NESTED, {"a": {"b": None}, "c": ["x", None]}, '{"a":{},"c":["x",null]}'),
        (pa.timestamp("us", "No/Where"), _SUMMER, '"2026-06-21T00:00:00.123Z"'),
    ],
    ids=str,
)
def test_a_value_is_json_and_null_is_null(kind: pa.DataType, value: object, text: str) -> None:
    rows = pa.array([None, value, None, value], kind)
    assert texts(rows) == [None, text, None, text]
    assert texts(rows.slice(1, 2)) == [text, None]
    assert texts(rows.slice(0, 0)) == []


def test_fields_under_a_null_struct_do_not_show() -> None:
    fields = pa.array([1, 2], pa.int32())
    validity = pa.py_buffer(b"\2")
    rows = pa.StructArray.from_buffers(pa.struct([("f", pa.int32())]), 2, [validity], children=[fields])
    assert texts(rows) == [None, '{"f":2}']


def test_a_value_that_cannot_be_converted_is_a_row_of_arrow() -> None:
    """No variant has these bytes."""
    fields = [pa.field("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]
    rows = pa.array([{"value": b"\xff", "metadata": b""}], pa.struct(fields))
    (text,) = texts(pa.StructArray.from_arrays([rows, pa.array(["x"])], ["v", "other"]))
    assert text is not None
    read = json.loads(text)
    assert (list(read["v"]), read["other"]) == (["arrow"], "x")
