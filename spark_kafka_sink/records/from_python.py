"""Python lists and numpy arrays as Arrow arrays, without ``pyarrow.array``, because it imports pandas, which takes
seconds where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import index
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError, clause
from spark_kafka_sink.records.arrays import binary_array

Mask: TypeAlias = npt.NDArray[np.bool_]
_Maker: TypeAlias = Callable[[Sequence[Any], "Mask | None"], pa.Array]

_LARGEST: Final = 2**31 - 1
_MICROSECOND: Final = timedelta(microseconds=1)


def python_column(values: object, name: str = "column") -> pa.Array | pa.ChunkedArray:
    """An Arrow array of Python values: as ``pyarrow.array(values)``, but it never imports pandas.

    Takes lists, tuples, ranges, generators and numpy arrays of str, bytes, integers, datetimes and nulls, including
    lists of pairs or dicts for headers, and objects that convert themselves to Arrow (columns of pandas and polars).
    All values must be of one type. Raises ``InvalidRecordError`` for anything else, with the ``name`` of the argument.
    """
    try:
        return _column(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecordError(
            f"{name} cannot be made into an Arrow array: {clause(error)}. Give an Arrow array, or a list or numpy "
            "array of str, bytes, integers or datetimes, all of one type."
        ) from error


def _column(values: Any) -> pa.Array | pa.ChunkedArray:
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"a {type(values).__name__} of {values.ndim} dimensions is not a column")
    if isinstance(values, np.ndarray):
        return _of_numpy(values)
    if values.__class__ not in (list, tuple):
        if hasattr(values, "__arrow_array__") or hasattr(values, "__arrow_c_array__") or _is_of_pandas(values):
            return pa.array(values)
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        if not isinstance(values, Iterable) or isinstance(values, str | bytes | bytearray | memoryview | Mapping):
            raise TypeError(f"it is of type {type(values).__name__}, not a column of values")
        values = list(values)
    return _of_values(values)


def _is_of_pandas(values: object) -> bool:
    return type(values).__module__.partition(".")[0] == "pandas"


def _of_numpy(values: npt.NDArray[Any]) -> pa.Array:
    dtype = values.dtype.newbyteorder("=")
    if dtype.kind == "m":
        raise TypeError(f"it has values of type {dtype}")
    if isinstance(values, np.ma.MaskedArray):
        if dtype.kind != "M":
            return _of_values(values.tolist())
        values = values.filled(np.datetime64("NaT"))
    values = values.astype(dtype, copy=False)
    if dtype.kind in "iu":
        return _numbers(pa.from_numpy_dtype(dtype), np.ascontiguousarray(values), None)
    if dtype.kind == "M" and np.datetime_data(dtype)[0] in ("s", "ms", "us", "ns"):
        missing = np.isnat(values)
        numbers = np.ascontiguousarray(values).view(np.int64)
        return _numbers(pa.from_numpy_dtype(dtype), numbers, missing if missing.any() else None)
    return _of_values(values.tolist())


def _of_values(values: Sequence[Any]) -> pa.Array:
    """The values as an Arrow array. Raises ``TypeError``, ``ValueError`` or ``OverflowError``."""
    if values and (first := values[0].__class__) in (bytes, str):
        try:
            return _blobs(values, None) if first is bytes else _texts(values, None)
        except TypeError:  # not all are; checking each first would double the time
            pass
    kinds = set(map(type, values))
    missing = None
    if None.__class__ in kinds:
        kinds.discard(None.__class__)
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
    if not kinds:
        return pa.nulls(len(values))
    if not kinds.isdisjoint((bytearray, memoryview)) or any(
        issubclass(kind, np.generic) or (hasattr(kind, "__index__") and not issubclass(kind, int)) for kind in kinds
    ):
        values = [_plain(value) for value in values]
        kinds = set(map(type, values)) - {None.__class__}
    makers = {kind: _maker(kind) for kind in kinds}
    if len(set(makers.values())) > 1:
        raise TypeError(f"it has values of types {' and '.join(sorted(kind.__name__ for kind in kinds))}")
    return makers.popitem()[1](values, missing)


def _plain(value: Any) -> Any:
    """A Python value: an int for numbers of numpy and objects with ``__index__``, bytes for other buffers."""
    if isinstance(value, np.datetime64 | np.timedelta64) and isinstance(value.item(), int):
        raise TypeError(f"it has values of type {value.dtype}")  # nanoseconds would count as a number
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__index__") and not isinstance(value, int):
        return index(value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _maker(kind: type) -> _Maker:
    """The maker for a type or its nearest base class, so that a named tuple counts as a tuple; a bool is refused."""
    for base in () if kind is bool else kind.__mro__:
        if base in _MAKERS:
            return _MAKERS[base]
    raise TypeError(f"it has values of type {kind.__name__}")


def _texts(values: Sequence[str | None], missing: Mask | None) -> pa.Array:
    texts: Sequence[str] = _fill(values, missing, "")
    text = "".join(texts)
    if text.isascii():
        column = _slots(text.encode(), texts, missing)
    else:
        encoded = [text.encode() for text in texts]
        column = _slots(b"".join(encoded), encoded, missing)
    return pa.Array.from_buffers(pa.string(), len(column), column.buffers())


def _blobs(values: Sequence[bytes | None], missing: Mask | None) -> pa.Array:
    blobs: Sequence[bytes] = _fill(values, missing, b"")
    return _slots(b"".join(blobs), blobs, missing)


def _slots(data: bytes, values: Sequence[bytes] | Sequence[str], missing: Mask | None) -> pa.BinaryArray:
    """Slots of ``data`` as long as each of ``values``."""
    if len(data) > _LARGEST:
        raise ValueError("it has more than 2 GiB")
    return binary_array(_offsets(map(len, values), len(values)), data, missing)


def _integers(values: Sequence[int | None], missing: Mask | None) -> pa.Array:
    try:
        return _numbers(pa.int64(), np.array(_fill(values, missing, 0), np.int64), missing)
    except OverflowError:
        row, value = next((row, v) for row, v in enumerate(values) if v is not None and not -(2**63) <= v < 2**63)
        raise OverflowError(f"{value} in row {row} does not fit into 64 bits") from None


def _instants(values: Sequence[datetime | None], missing: Mask | None) -> pa.Array:
    zones = [value.tzinfo for value in values if value is not None]
    if None in zones:
        if any(zones):
            raise ValueError("it has datetimes with and without time zones")
        zone, first = None, datetime(1970, 1, 1)
    else:
        zone, first = pa.lib.tzinfo_to_string(zones[0]), datetime(1970, 1, 1, tzinfo=UTC)
    filled = _fill(values, missing, first)
    numbers = np.fromiter(((value - first) // _MICROSECOND for value in filled), np.int64, len(filled))
    return _numbers(pa.timestamp("us", zone), numbers, missing)


def _lists(values: Sequence[Sequence[Any] | None], missing: Mask | None) -> pa.Array:
    filled = _fill(values, missing, ())
    items = list(chain.from_iterable(filled))
    of_items = _of_values([_header(item) if isinstance(item, tuple) else item for item in items])
    if len(items) > _LARGEST:
        raise ValueError("it has lists of more than 2**31 values together")
    buffers = [_validity(missing), pa.py_buffer(_offsets(map(len, filled), len(filled)))]
    return pa.Array.from_buffers(pa.list_(of_items.type), len(values), buffers, children=[of_items])


def _header(pair: tuple[Any, ...]) -> dict[str, Any]:
    """The struct for a header as ``ProducerRecord`` has it."""
    if len(pair) != 2:
        raise ValueError(f"a header must be a pair of key and value, not {pair!r}")
    return {"key": pair[0], "value": pair[1]}


def _structs(values: Sequence[dict[str, Any] | None], missing: Mask | None) -> pa.Array:
    filled = _fill(values, missing, {})
    names = list(dict.fromkeys(chain.from_iterable(filled)))
    if any(name.__class__ is not str for name in names):
        raise TypeError("it has dicts with keys that are not strings")
    children: list[pa.Array] = [_of_values([value.get(name) for value in filled]) for name in names]
    kind = pa.struct([(name, child.type) for name, child in zip(names, children, strict=True)])
    return pa.Array.from_buffers(kind, len(values), [_validity(missing)], children=children)


_MAKERS: Final[dict[type, _Maker]] = {
    str: _texts,
    bytes: _blobs,
    int: _integers,
    datetime: _instants,
    list: _lists,
    tuple: _lists,
    dict: _structs,
}


def _fill(values: Sequence[Any], missing: Mask | None, default: object) -> Sequence[Any]:
    return values if missing is None else [default if value is None else value for value in values]


def _offsets(lengths: Iterable[int], count: int) -> npt.NDArray[np.int32]:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(lengths, np.int32, count), out=offsets[1:])
    return offsets


def _numbers(kind: pa.DataType, numbers: npt.NDArray[Any], missing: Mask | None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [_validity(missing), pa.py_buffer(numbers)])


def _validity(missing: Mask | None) -> pa.Buffer | None:
    return None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
