"""Python lists and numpy arrays as Arrow arrays: what ``pyarrow.array`` makes of them, but ``pyarrow.array`` imports
pandas, which takes seconds where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import binary_array

Mask: TypeAlias = npt.NDArray[np.bool_]
_Maker: TypeAlias = Callable[[Sequence[Any], "Mask | None"], "pa.Array | None"]

_LARGEST: Final = 2**31 - 1
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_DAY: Final = date(1970, 1, 1)
_MOST_DIGITS: Final = 38


def python_column(values: object) -> pa.Array | pa.ChunkedArray:
    """The array that ``pyarrow.array(values)`` is.

    Lists, tuples and numpy arrays of one kind of value, and nulls, are made here, nested ones too. All else, such as
    mixed kinds and columns of pandas, is left to ``pyarrow.array``, whose errors they get.
    """
    made = None
    if isinstance(values, np.ndarray):
        made = _of_numpy(values)
    elif values.__class__ in (list, tuple):
        made = _of_values(values)
    return pa.array(values) if made is None else made


def _of_numpy(values: npt.NDArray[Any]) -> pa.Array | None:
    dtype = values.dtype
    if values.ndim != 1 or isinstance(values, np.ma.MaskedArray) or not dtype.isnative:
        return None
    if dtype.kind in "SUO":
        return _of_values(values.tolist())
    if dtype.kind == "b":
        return _booleans(values, None)  # type: ignore[arg-type]
    if dtype.kind in "iuf":
        return _numbers(pa.from_numpy_dtype(dtype), np.ascontiguousarray(values), None)
    if dtype.kind == "M" and np.datetime_data(dtype)[0] in ("s", "ms", "us", "ns"):
        missing = np.isnat(values)
        numbers = np.ascontiguousarray(values).view(np.int64)
        return _numbers(pa.from_numpy_dtype(dtype), numbers, missing if missing.any() else None)
    return None


def _of_values(values: Sequence[Any]) -> pa.Array | None:
    """None if they are not all of one kind that is known here."""
    if values and (first := values[0].__class__) in (bytes, str):
        try:
            return _blobs(values, None) if first is bytes else _texts(values, None)
        except TypeError:  # not all are; to look at each first would double the time
            pass
    kinds = set(map(type, values))
    missing = None
    if None.__class__ in kinds:
        kinds.discard(None.__class__)
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    if not kinds:
        return pa.nulls(len(values))
    make = _MAKERS.get(kinds.pop())
    return None if kinds or make is None else make(values, missing)


def _texts(values: Sequence[str | None], missing: Mask | None) -> pa.Array | None:
    texts: Sequence[str] = _filled(values, missing, "")
    text = "".join(texts)
    if text.isascii():
        column = _slots(text.encode(), texts, missing)
    else:
        encoded = [each.encode() for each in texts]
        column = _slots(b"".join(encoded), encoded, missing)
    return None if column is None else pa.Array.from_buffers(pa.string(), len(column), column.buffers())


def _blobs(values: Sequence[bytes | None], missing: Mask | None) -> pa.Array | None:
    blobs: Sequence[bytes] = _filled(values, missing, b"")
    return _slots(b"".join(blobs), blobs, missing)


def _slots(data: bytes, values: Sequence[bytes] | Sequence[str], missing: Mask | None) -> pa.BinaryArray | None:
    """Slots of ``data`` as long as each of ``values``."""
    if len(data) > _LARGEST:
        return None
    offsets = _offsets(map(len, values), len(values))
    return binary_array(offsets, data, missing) if offsets[-1] == len(data) else None


def _integers(values: Sequence[int | None], missing: Mask | None) -> pa.Array | None:
    try:
        return _numbers(pa.int64(), np.array(_filled(values, missing, 0), np.int64), missing)
    except OverflowError:
        return None


def _floats(values: Sequence[float | None], missing: Mask | None) -> pa.Array:
    return _numbers(pa.float64(), np.array(_filled(values, missing, 0.0), np.float64), missing)


def _booleans(values: Sequence[bool | None], missing: Mask | None) -> pa.Array:
    return _numbers(pa.bool_(), _bits(np.asarray(_filled(values, missing, False), np.bool_)), missing, len(values))


def _decimals(values: Sequence[Decimal | None], missing: Mask | None) -> pa.Array | None:
    digits = scale = 0
    for value in values:
        if value is not None:
            _, each, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                return None
            digits, scale = max(digits, len(each) + exponent), max(scale, -exponent)
    if not 0 < max(digits, 0) + scale <= _MOST_DIGITS:
        return None
    column = _texts([None if value is None else f"{value:f}" for value in values], missing)
    return None if column is None else column.cast(pa.decimal128(max(digits, 0) + scale, scale))


def _instants(values: Sequence[datetime | None], missing: Mask | None) -> pa.Array | None:
    zones = [value.tzinfo for value in values if value is not None]
    if None in zones:
        if any(zones):
            return None
        zone, first = None, datetime(1970, 1, 1)
    else:
        zone, first = pa.lib.tzinfo_to_string(zones[0]), datetime(1970, 1, 1, tzinfo=UTC)
    return _durations(pa.timestamp("us", zone), first, values, missing)


def _days(values: Sequence[date | None], missing: Mask | None) -> pa.Array:
    filled = _filled(values, missing, _FIRST_DAY)
    days = np.fromiter((value.toordinal() for value in filled), np.int32, len(filled))
    return _numbers(pa.date32(), days - np.int32(_FIRST_DAY.toordinal()), missing)


def _times(values: Sequence[time | None], missing: Mask | None) -> pa.Array | None:
    if any(value.tzinfo for value in values if value is not None):
        return None
    moments = [None if value is None else datetime.combine(_FIRST_DAY, value) for value in values]
    return _durations(pa.time64("us"), datetime(1970, 1, 1), moments, missing)


def _durations(kind: pa.DataType, first: Any, values: Sequence[Any], missing: Mask | None) -> pa.Array:
    """The microseconds from ``first`` to each value."""
    filled = _filled(values, missing, first)
    return _numbers(kind, np.fromiter(((v - first) // _MICROSECOND for v in filled), np.int64, len(filled)), missing)


def _lists(values: Sequence[Sequence[Any] | None], missing: Mask | None) -> pa.Array | None:
    filled = _filled(values, missing, ())
    items = list(chain.from_iterable(filled))
    of_items = _of_values(items)
    if of_items is None or len(items) > _LARGEST:
        return None
    buffers = [_validity(missing), pa.py_buffer(_offsets(map(len, filled), len(filled)))]
    return pa.Array.from_buffers(pa.list_(of_items.type), len(values), buffers, children=[of_items])


def _structs(values: Sequence[dict[str, Any] | None], missing: Mask | None) -> pa.Array | None:
    filled = _filled(values, missing, {})
    names = list(dict.fromkeys(chain.from_iterable(filled)))
    if any(name.__class__ is not str for name in names):
        return None
    children: list[pa.Array] = []
    for name in names:
        child = _of_values([value.get(name) for value in filled])
        if child is None:
            return None
        children.append(child)
    kind = pa.struct([(name, child.type) for name, child in zip(names, children, strict=True)])
    return pa.Array.from_buffers(kind, len(values), [_validity(missing)], children=children)


_MAKERS: Final[dict[type, _Maker]] = {
    str: _texts,
    bytes: _blobs,
    bool: _booleans,
    int: _integers,
    float: _floats,
    Decimal: _decimals,
    datetime: _instants,
    date: _days,
    time: _times,
    timedelta: partial(_durations, pa.duration("us"), timedelta(0)),
    list: _lists,
    tuple: _lists,
    dict: _structs,
}


def _filled(values: Sequence[Any], missing: Mask | None, default: object) -> Sequence[Any]:
    return values if missing is None else [default if value is None else value for value in values]


def _offsets(lengths: Iterable[int], count: int) -> npt.NDArray[np.int32]:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, count), out=offsets[1:])
    return offsets


def _numbers(kind: pa.DataType, numbers: npt.NDArray[Any], missing: Mask | None, count: int | None = None) -> pa.Array:
    rows = len(numbers) if count is None else count
    return pa.Array.from_buffers(kind, rows, [_validity(missing), pa.py_buffer(numbers)])


def _validity(missing: Mask | None) -> pa.Buffer | None:
    return None if missing is None else pa.py_buffer(_bits(~missing))


def _bits(flags: Mask) -> npt.NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")
