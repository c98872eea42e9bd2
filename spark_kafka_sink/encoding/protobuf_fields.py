"""A plan of a Protobuf message: its fields, and how each reads its Arrow array. Needs no descriptors: workers have it.

A *kind* turns an array into values of a Protobuf type; a *field* puts them behind tags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.encoding.columns import (
    Mask,
    Numbers,
    Slots,
    integers,
    list_elements,
    missing_slots,
    numbers,
    plain,
    repeated_keys,
    without_elements,
)
from spark_kafka_sink.encoding.protobuf_wire import (
    VARINT,
    Delimited,
    Fixeds,
    Part,
    Unsigned,
    Values,
    Varints,
    one_column,
    tag,
)
from spark_kafka_sink.records.columns import Int64Array, binary_array, binary_column, bytes_column

SLICE_ROWS: Final = 10_000
"""Rows, or elements of lists, that are encoded together: their pieces stay in the CPU's caches."""

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # 0001-01-01 to 9999-12-31
_LONGEST_DURATION = 315_576_000_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_NANOS = 1_000_000_000


class Kind(Protocol):
    """A Protobuf type, and the Arrow type that it is written from."""

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        """``missing``: where ``array``, of a plain layout, is null."""


class Field(Protocol):
    def part(self, array: pa.Array, absent: Mask | None, slots: Slots) -> Part:
        """The field in the bytes of its message. ``absent``: where there is no message."""


@dataclass(frozen=True, slots=True)
class Integer:
    """``lowest`` and ``highest``: of the Protobuf type; None if every number of the Arrow type fits."""

    path: str
    type: str
    fixed: str | None = None
    zigzag: bool = False
    range: tuple[int, int] | None = None

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        values = integers(array)
        if self.range is not None:
            lowest, highest = self.range
            wrong = values < lowest
            if highest < np.iinfo(values.dtype).max:
                wrong |= values > highest
            slots.report(wrong, self.path, f"{{}} is out of range for {self.type}", array)
        if self.fixed is not None:
            return Fixeds(values.astype(self.fixed, copy=False))
        if self.zigzag:
            signed = values.astype(np.int64)
            return Varints(((signed << 1) ^ (signed >> 63)).view(np.uint64))
        return Varints(_as_varints(values))


@dataclass(frozen=True, slots=True)
class Floating:
    """float and double, from floats and from integers that they hold exactly."""

    dtype: str

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        floating = pt.is_floating(array.type)
        values = numbers(array, np.dtype(f"f{array.type.bit_width // 8}")) if floating else integers(array)
        return Fixeds(values.astype(self.dtype, copy=False))


@dataclass(frozen=True, slots=True)
class Boolean:
    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        return Varints(integers(array.cast(pa.uint8())))


@dataclass(frozen=True, slots=True)
class Bytes:
    """string (``text``) and bytes."""

    path: str
    text: bool

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        column = binary_column(array)
        if self.text:
            try:
                column.cast(pa.string())
            except pa.ArrowInvalid:
                wrong = np.fromiter((not _is_utf8(each) for each in column.to_pylist()), np.bool_, len(column))
                slots.report(wrong, self.path, "{} is not UTF-8, and Protobuf strings are", column)
        return Delimited.of(column, missing)


@dataclass(frozen=True, slots=True)
class EnumSymbol:
    """An enum from its symbols."""

    path: str
    type: str
    symbols: tuple[str, ...]
    numbers: tuple[int, ...]

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        column = binary_column(array)
        found = pc.index_in(column, value_set=bytes_column([each.encode() for each in self.symbols]))
        unknown = missing_slots(found)
        if unknown is not None:
            wrong = unknown if missing is None else unknown & ~missing
            slots.report(wrong, self.path, f"{{}} is not a symbol of enum {self.type}", array)
        values = np.array(self.numbers, np.int32)[integers(found)]
        return Varints(_as_varints(values if missing is None else np.where(missing, np.int32(0), values)))


@dataclass(frozen=True, slots=True)
class EnumNumber:
    """An enum from numbers. ``numbers``: those of a closed enum; None: an open one, which has any."""

    path: str
    type: str
    numbers: tuple[int, ...] | None

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        values = integers(array)
        if self.numbers is not None:
            wrong = ~np.isin(values, np.array(self.numbers, np.int32))
            wrong = wrong if missing is None else wrong & ~missing
            slots.report(wrong, self.path, f"{{}} is not a number of enum {self.type}", array)
        return Varints(_as_varints(values))


@dataclass(frozen=True, slots=True)
class Timestamp:
    """google.protobuf.Timestamp: seconds rounded down and nanoseconds from 0 on."""

    path: str

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        unit = array.type.unit
        values = numbers(array, np.dtype(np.int64))
        seconds = values // _PER_SECOND[unit]
        wrong = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)
        slots.report(
            wrong, self.path, f"{{}} {unit} since 1970 is not in the years 0001 to 9999 of a Timestamp", values
        )
        return _seconds_and_nanos(seconds, values - seconds * _PER_SECOND[unit], unit)


@dataclass(frozen=True, slots=True)
class Duration:
    """google.protobuf.Duration: seconds and nanoseconds have the same sign."""

    path: str

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        unit = array.type.unit
        values = numbers(array, np.dtype(np.int64))
        rest = np.fmod(values, _PER_SECOND[unit])
        seconds = (values - rest) // _PER_SECOND[unit]
        wrong = (seconds < -_LONGEST_DURATION) | (seconds > _LONGEST_DURATION)
        slots.report(
            wrong, self.path, f"{{}} {unit} is longer than a Duration, which has {_LONGEST_DURATION} s", values
        )
        return _seconds_and_nanos(seconds, rest, unit)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """google.protobuf.StringValue and the like: a message around one value."""

    tag: bytes
    kind: Kind

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        values = self.kind.values(array, missing, slots)
        part = values.part(self.tag, values.zeros())
        return Delimited(part.sizes, part.pieces)


@dataclass(frozen=True, slots=True)
class Message:
    """A message from a struct. ``fields``: with their indexes in the struct, by number; ``oneofs``: with paths."""

    fields: tuple[tuple[int, Field], ...]
    oneofs: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def part(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Part:
        """The bytes of the message; none where it is null."""
        columns = array.flatten()
        for path, indexes in self.oneofs:
            self._check(path, [columns[index] for index in indexes], slots)
        return Part.of(len(array), (field.part(columns[index], missing, slots) for index, field in self.fields))

    def values(self, array: pa.Array, missing: Mask | None, slots: Slots) -> Values:
        part = self.part(array, missing, slots)
        return Delimited(part.sizes, part.pieces)

    def encoded(self, array: pa.Array, slots: Slots, prefix: bytes = b"") -> pa.BinaryArray:
        """``prefix`` and the message per row, null where it is null."""
        missing = missing_slots(array)
        return self.part(array, missing, slots).joined(prefix, missing)

    @staticmethod
    def _check(path: str, columns: list[pa.Array], slots: Slots) -> None:
        count = np.zeros(len(columns[0]), np.int32)
        for each in columns:
            missing = missing_slots(each)
            count += 1 if missing is None else ~missing
        slots.report(count > 1, path, "more than one column of the oneof is not null")


@dataclass(frozen=True, slots=True)
class Singular:
    """A field that is not repeated. ``presence``: its type's default is written too."""

    tag: bytes
    kind: Kind
    path: str
    presence: bool = False
    required: bool = False

    def part(self, array: pa.Array, absent: Mask | None, slots: Slots) -> Part:
        array = plain(array)
        missing = missing_slots(array)
        if self.required and missing is not None:
            slots.report(missing if absent is None else missing & ~absent, self.path, "null, but the field is required")
        if pt.is_null(array.type):
            return no_bytes(len(array))
        values = self.kind.values(array, missing, slots)
        if not self.presence:
            zeros = values.zeros()
            missing = zeros if missing is None else zeros | missing
        return values.part(self.tag, missing)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A list. ``packed``: one tag for all elements, else one each. Null elements are left out."""

    tag: bytes
    element: Kind
    packed: bool

    def part(self, array: pa.Array, absent: Mask | None, slots: Slots) -> Part:
        array = plain(array)
        if pt.is_null(array.type):
            return no_bytes(len(array))
        counts, elements = list_elements(array)
        elements = plain(elements)
        counts, elements = without_elements(missing_slots(elements), counts, elements)
        if self.packed:
            packed = _lists_of(_encoded(self.element, b"", elements, slots.elements(counts)), counts)
            return packed.part(self.tag, packed.zeros())
        lists = _lists_of(_encoded(self.element, self.tag, elements, slots.elements(counts)), counts)
        return Part(lists.lengths, lists.body)


@dataclass(frozen=True, slots=True)
class Map:
    """Entries are messages of key and value. Those with a null value are left out."""

    tag: bytes
    entry: Message
    path: str

    def part(self, array: pa.Array, absent: Mask | None, slots: Slots) -> Part:
        array = plain(array)
        if pt.is_null(array.type):
            return no_bytes(len(array))
        counts, entries = list_elements(array)
        counts, entries = without_elements(missing_slots(plain(entries.flatten()[1])), counts, entries)
        slots = slots.elements(counts)
        keys = plain(entries.flatten()[0])
        slots.report(repeated_keys(counts, keys), self.path, "the key {} is there more than once", keys)
        lists = _lists_of(_encoded(self.entry, self.tag, entries, slots), counts)
        return Part(lists.lengths, lists.body)


def no_bytes(rows: int) -> Part:
    return Part(np.zeros(rows, np.int64), ())


def _encoded(kind: Kind, before: bytes, array: pa.Array, slots: Slots) -> pa.BinaryArray:
    """Each value behind ``before``; none may be null."""
    encoded = []
    for start in range(0, len(array), SLICE_ROWS):
        values = kind.values(array.slice(start, SLICE_ROWS), None, slots.slice(start))
        encoded.append(values.part(before, None).joined())
    return one_column(encoded)


def _lists_of(elements: pa.BinaryArray, counts: Int64Array) -> Delimited:
    """So many neighbouring elements each, as one slot."""
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    _, buffer, data = elements.buffers()
    bounds = np.frombuffer(buffer, np.int32, len(elements) + 1, 4 * elements.offset)[ends]
    return Delimited.of(binary_array(bounds, data))


def _as_varints(values: Numbers) -> Unsigned:
    """Negative numbers take 10 bytes, as those of int64."""
    if values.dtype.kind == "u":
        return values
    return values.astype(np.int64, copy=False).view(np.uint64)


def _seconds_and_nanos(seconds: Int64Array, rest: Int64Array, unit: str) -> Values:
    nanos = rest * (_NANOS // _PER_SECOND[unit])
    parts = (
        Varints(values.view(np.uint64)).part(tag(number, VARINT), values == 0)
        for number, values in ((1, seconds), (2, nanos))
    )
    part = Part.of(len(seconds), parts)
    return Delimited(part.sizes, part.pieces)


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or bool(value.decode()) or True
    except UnicodeDecodeError:
        return False
