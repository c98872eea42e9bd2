"""Arrow arrays of any layout as an encoder reads them, and the rows that their slots belong to."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.encoding.encoder import Fault
from spark_kafka_sink.records.columns import Int64Array, int32_array, null_mask

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[Any]

_SHOWN = 100


class Slots:
    """Where the slots of an array are in the column. Collects what is wrong with them."""

    def __init__(self, faults: list[Fault], first: int = 0) -> None:
        self.faults = faults
        self._first = first
        self._parent: Slots | None = None
        self._ends: Int64Array | None = None

    def elements(self, counts: Int64Array) -> Slots:
        """Of the elements of lists with so many elements each."""
        slots = Slots(self.faults)
        slots._parent = self
        slots._ends = np.cumsum(counts)
        return slots

    def slice(self, start: int) -> Slots:
        """Of a slice from slot ``start`` on."""
        slots = Slots(self.faults, self._first + start)
        slots._parent, slots._ends = self._parent, self._ends
        return slots

    def rows(self, slots: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """The rows that these slots belong to."""
        slots = slots + self._first
        if self._parent is None or self._ends is None:
            return slots
        return self._parent.rows(np.searchsorted(self._ends, slots, side="right"))

    def report(self, wrong: Mask, path: str, problem: str, values: Numbers | pa.Array | None = None) -> None:
        """The slots where ``wrong``; ``problem`` has the slot's value at ``{}``."""
        if not wrong.any():
            return
        at = np.flatnonzero(wrong)
        for slot, row in zip(at.tolist(), self.rows(at).tolist(), strict=True):
            self.faults.append(Fault(row, path, problem if values is None else problem.format(_shown(values[slot]))))


def _shown(value: Any) -> str:
    text = repr(value.as_py() if isinstance(value, pa.Scalar) else value.item())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def plain(array: pa.Array) -> pa.Array:
    """Without the layouts that only save memory: dictionaries and run ends."""
    while True:
        if pt.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pt.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that arrays of the same values have, whatever their layout: small, without dictionaries.

    Lists of entries and maps stay different; nullability and metadata are dropped.
    """
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pt.is_large_string(kind) or pt.is_string_view(kind):
        return pa.string()
    if pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return pa.binary()
    if is_any_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pt.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pt.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    return kind


def is_any_list(kind: pa.DataType) -> bool:
    """A list of any layout, not a map."""
    return bool(
        pt.is_list(kind)
        or pt.is_large_list(kind)
        or pt.is_fixed_size_list(kind)
        or pt.is_list_view(kind)
        or pt.is_large_list_view(kind)
    )


def missing_slots(array: pa.Array) -> Mask | None:
    """True where a slot is null; None if none is."""
    if pt.is_null(array.type):
        return np.ones(len(array), np.bool_)
    return null_mask(array) if array.null_count else None


def list_elements(array: pa.Array) -> tuple[Int64Array, pa.Array]:
    """The number of elements per row (a null list has none), then all elements.

    Entries of maps are structs of ``key`` and ``value``.
    """
    kind = array.type
    if pt.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    lengths = pc.list_value_length(array)
    dtype = np.int64 if pt.is_int64(lengths.type) else np.int32
    counts: Int64Array = _buffer_numbers(lengths, np.dtype(dtype)).astype(np.int64)
    if lengths.null_count:
        counts[null_mask(lengths)] = 0
    # Respects slices, and leaves out the slots that a null list spans.
    return counts, array.flatten()


def without_elements(dropped: Mask | None, counts: Int64Array, elements: pa.Array) -> tuple[Int64Array, pa.Array]:
    """Lists without some of their elements."""
    if dropped is None or not dropped.any():
        return counts, elements
    kept = np.zeros(len(elements) + 1, np.int64)
    np.cumsum(~dropped, out=kept[1:])
    ends = np.concatenate(([0], np.cumsum(counts)))
    return np.diff(kept[ends]), elements.take(int32_array(np.flatnonzero(~dropped).astype(np.int32)))


def repeated_keys(counts: Int64Array, keys: pa.Array) -> Mask:
    """True for a key that its map has had before."""
    again = np.zeros(len(keys), np.bool_)
    if int(counts.max(initial=0)) < 2:
        return again
    codes = keys.dictionary_encode().indices
    maps = np.repeat(np.arange(len(counts)), counts)
    pairs = maps * len(keys) + _buffer_numbers(codes, np.dtype(np.int32))
    order = np.argsort(pairs, kind="stable")
    ordered = pairs[order]
    again[order[1:][ordered[1:] == ordered[:-1]]] = True
    return again


def integers(array: pa.Array) -> Numbers:
    """The numbers of an integer array, in its own width; 0 where null."""
    kind = array.type
    sign = "i" if pt.is_signed_integer(kind) else "u"
    return numbers(array, np.dtype(f"{sign}{kind.bit_width // 8}"))


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> Numbers:
    """The fixed-width values of an array, read as ``dtype``; 0 where null."""
    values = _buffer_numbers(array, dtype)
    return np.where(null_mask(array), dtype.type(0), values) if array.null_count else values


def _buffer_numbers(array: pa.Array, dtype: np.dtype[Any]) -> Numbers:
    if not len(array):
        return np.zeros(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
