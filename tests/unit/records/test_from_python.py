"""Arrow arrays of Python values are those of ``pyarrow.array``, which is not called for the usual ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.records import from_python
from spark_kafka_sink.records.from_python import python_column

BERLIN = ZoneInfo("Europe/Berlin")
MADE_HERE: list[Any] = [
    [],
    (),
    [None, None],
    ["a", "", "ünïcode", None],
    ("a", "b"),
    ["ascii", None, "x" * 1000],
    ["a", np.str_("b")],
    [b"a", bytearray(b"b")],
    [b"a", None, b"", b"\0\xff"],
    [1, None, -(2**63), 2**63 - 1],
    [1.5, None, float("inf"), -0.0],
    [True, None, False] * 7,
    [Decimal("1.25"), None, Decimal(-100), Decimal("1E+3"), Decimal("0.001")],
    [Decimal(0)],
    [datetime(2020, 5, 1, 12, 30, 1, 999_999), None, datetime(1, 1, 1)],
    [datetime(2020, 5, 1, tzinfo=UTC), None, datetime(2020, 8, 1, tzinfo=BERLIN)],
    [datetime(2020, 8, 1, tzinfo=BERLIN)],
    [datetime(2020, 8, 1, tzinfo=timezone(timedelta(hours=2)))],
    [date(2020, 5, 1), None, date(1, 1, 1), date(9999, 12, 31)],
    [time(23, 59, 59, 999_999), None, time(0)],
    [timedelta(days=-1, microseconds=1), None, timedelta(0)],
    [[{"key": "a", "value": b"x"}, {"key": "b", "value": None}], None, []],
    [[1, 2], None, [], [None]],
    [("a", "b"), None],
    [[], None],
    [[[1], []], [None]],
    [{"b": 1}, {"a": [2]}, None, {}],
    [{}, None],
    [{"key": {"nested": "x"}}],
    np.array([1, 2, 3]),
    np.arange(10)[::3],
    np.array([1, 2], np.uint8),
    np.array([1.5, float("nan")]),
    np.array([1.5], np.float16),
    np.array([], np.int32),
    np.array([True, False, True] * 5),
    np.array(["a", "bc"]),
    np.array([b"a\0", b"bc"]),
    np.array([None, "a"], object),
    np.array([], object),
    *(np.array(["2020-01-01T01:02:03", "NaT"], f"M8[{unit}]") for unit in ("s", "ms", "us", "ns")),
]
LEFT_TO_ARROW: list[Any] = [
    [1, 2.5],
    ["a", b"b"],
    [datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)],
    [Decimal("1E+40")],
    [bytearray(b"x")],
    [b"a", memoryview(np.array([1, 2])), None],
    [np.int32(1), 2],
    np.array(["2020", "NaT"], "M8[D]"),
    np.ma.array([1, 2], mask=[False, True]),  # type: ignore[no-untyped-call]
    "abc",
    range(3),
    [[1], (2,)],
    [{"a": 1}, {"a": "b"}],
    [2**63],
    [1, True],
    [1, "a"],
    np.array([[1]]),
    np.array([1], ">i4"),
    5,
    [{1: 2}],
    [Decimal("nan")],
]


@pytest.mark.parametrize("values", MADE_HERE, ids=range(len(MADE_HERE)))
def test_the_usual_values_become_the_array_that_arrow_makes_of_them(monkeypatch, values):
    expected = pa.array(values)
    with monkeypatch.context() as patch:
        patch.setattr(from_python, "pa", SimpleNamespace(**{**vars(pa), "array": None}))
        array = python_column(values)
    array.validate(full=True)
    assert array.type == expected.type
    assert array.equals(expected) or str(array) == str(expected), "NaN equals nothing"


def _outcome(make: Callable[[Any], pa.Array], values: Any) -> object:
    try:
        return make(values)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("values", LEFT_TO_ARROW, ids=range(len(LEFT_TO_ARROW)))
def test_other_values_are_left_to_arrow_with_its_errors(values):
    assert _outcome(python_column, values) == _outcome(pa.array, values)


def test_text_that_is_no_unicode_is_refused_as_arrow_does():
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        python_column(["a", "caf\udce9"])
