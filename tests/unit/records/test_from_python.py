"""Arrow arrays of Python values are those of ``pyarrow.array``, which is not called."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records import from_python
from spark_kafka_sink.records.from_python import python_column

BERLIN = ZoneInfo("Europe/Berlin")
MADE_HERE: list[Any] = [
    [],
    (),
    [None, None],
    ["a", "", "ünïcode", None],
    ["a", np.str_("b")],
    [b"a", bytearray(b"b")],
    [b"a", None, b"", b"\0\xff"],
    [1, None, -(2**63), 2**63 - 1],
    [datetime(2020, 5, 1, 12, 30, 1, 999_999), None, datetime(1, 1, 1)],
    [datetime(2020, 5, 1, tzinfo=UTC), None, datetime(2020, 8, 1, tzinfo=BERLIN)],
    [datetime(2020, 8, 1, tzinfo=BERLIN)],
    [datetime(2020, 8, 1, tzinfo=timezone(timedelta(hours=2)))],
    [[{"key": "a", "value": b"x"}, {"key": "b", "value": None}], None, []],
    [[1, 2], None, [], [None]],
    [("a", "b"), None],
    [[], None],
    [[[1], []], [None]],
    [{"a": 1}, {"b": [2]}, None, {}],
    [{}, None],
    [{"key": {"nested": "x"}}],
    np.array([1, 2, 3]),
    np.arange(10)[::3],
    np.array([1, 2], np.uint8),
    np.array([], np.int32),
    np.array(["a", "bc"]),
    np.array([b"a\0", b"bc"]),
    np.array([None, "a"], object),
    np.array([], object),
    *(np.array(["2020-01-01T01:02:03", "NaT"], f"M8[{unit}]") for unit in ("s", "ms", "us", "ns")),
    [b"a", memoryview(np.array([1, 2])), None],
    [np.int32(1), 2],
    np.ma.array([1, 2], mask=[False, True]),  # type: ignore[no-untyped-call]
    range(3),
    [[1], (2,)],
]
REFUSED: list[tuple[Any, str]] = [
    ([1.5], "values of type float"),
    ([True, None], "values of type bool"),
    (np.array([1.5]), "values of type float"),
    ([date(2020, 5, 1)], "values of type date"),
    ([1, 2.5], "values of type float"),
    (["a", b"b"], "values of types bytes and str"),
    ([datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)], "datetimes with and without time zones"),
    (["a", "caf\udce9"], "surrogates not allowed"),
    ([1, None, 2**63], "9223372036854775808 in row 2 does not fit into 64 bits"),
    ([1, True], "values of type bool"),
    ([{"a": 1}, {"a": "b"}], "values of types int and str"),
    ([{1: 2}], "dicts with keys that are not strings"),
    ([object()], "values of type object"),
    (np.array([[1]]), "a ndarray of 2 dimensions is not a column"),
    ("abc", "it is of type str, not a column of values"),
    (5, "it is of type int, not a column of values"),
]


def never(*_: object) -> None:
    raise AssertionError("pyarrow.array imports pandas")


@pytest.fixture
def without_arrow(monkeypatch):
    patched = SimpleNamespace(**{**vars(pa), "array": never})
    with monkeypatch.context() as patch:
        yield lambda: patch.setattr(from_python, "pa", patched)


def test_fields_of_dicts_are_in_the_order_of_the_rows():
    """As in later versions of Arrow, but not in 19."""
    assert [field.name for field in python_column([{"b": 1}, {"a": 2}]).type] == ["b", "a"]


@pytest.mark.parametrize("values", MADE_HERE, ids=range(len(MADE_HERE)))
def test_values_of_one_type_become_the_array_that_arrow_makes_of_them(without_arrow, values):
    expected = pa.array(values)
    without_arrow()
    array = python_column(values)
    array.validate(full=True)
    assert array.type == expected.type
    assert array.equals(expected) or str(array) == str(expected), "NaN equals nothing"


@pytest.mark.parametrize(("values", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_incident_values_that_are_refused_imported_pandas_first_and_had_ten_kinds_of_errors(
    without_arrow, values, reason
):
    without_arrow()
    with pytest.raises(InvalidRecordError, match=f"^key cannot be made into an Arrow array: .*{reason}.*Give an Arrow"):
        python_column(values, "key")


def test_generators_sets_and_subclasses_become_arrays_too(without_arrow):
    class Colour(IntEnum):
        RED = 1

    without_arrow()
    assert python_column(each for each in (1, 2)).to_pylist() == [1, 2]
    assert python_column([Colour.RED]).to_pylist() == [1]
    assert python_column(np.array([1], ">i4")).to_pylist() == [1], "Arrow refuses it"


def test_columns_of_pandas_and_others_that_convert_themselves_are_taken_as_they_are():
    class Own:
        def __arrow_array__(self, type=None):  # noqa: A002  the name that Arrow calls it by
            return pa.array([1, 2])

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.chunked_array([[1, 2]]).__arrow_c_stream__(requested_schema)

    for column in (Own(), Stream(), pd.Series([1, 2])):
        assert python_column(column).to_pylist() == [1, 2]


def test_incident_a_whole_frame_of_pandas_given_as_a_column_was_a_key_error():
    frame = pytest.importorskip("pandas").DataFrame({"a": ["b"]})
    with pytest.raises(InvalidRecordError, match="^value cannot be .*: a DataFrame of 2 dimensions is not a column"):
        python_column(frame, "value")
