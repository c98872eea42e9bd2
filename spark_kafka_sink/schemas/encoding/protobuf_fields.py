"""The parts of a Protobuf plan: fields, each of which writes an Arrow array. Pickled for workers, without descriptors.

The format is described at https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.records.arrays import Int64Array, binary_column, list_elements, plain, slot_lengths
from spark_kafka_sink.records.varint_columns import zigzag
from spark_kafka_sink.schemas.encoding.columns import (
    PER_SECOND,
    floats,
    integers,
    invalid_utf8,
    only,
    refuse_repeated_keys,
    spans,
)
from spark_kafka_sink.schemas.encoding.encoder import (
    WORD_BITS,
    Mask,
    RowWriter,
    Words,
    bits_of,
    both,
    lists_of,
    mask_of,
    write_varints,
    write_words,
)
from spark_kafka_sink.schemas.encoding.runs import FieldKernel, PlannedField, RunField, RunKind

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # 0001-01-01 to 9999-12-31
_MAX_DURATION_S = 315_576_000_000
NOT_UTF8 = "is not UTF-8, and a Protobuf string is"
REQUIRED = "is not allowed: the field is required"
NO_ELEMENT = "is not allowed in a Protobuf list or map: leave it out, for example by Spark's filter or map_filter"
_NANOS = 1_000_000_000


class FieldType(Protocol):
    """A Protobuf type, and the Arrow type that it is written from."""

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        """Writes ``tag`` and a slot of ``array`` for each row of ``keep``, where none is null.

        ``array`` has a plain layout. The default of the type is only written with ``presence``.
        """


@dataclass(frozen=True, slots=True)
class IntegerType:
    """An integer. ``bounds``: the type's range, if the Arrow type has other numbers, as a decimal has for 64 bits.
    ``fixed``: the bits of a fixed-size type, 0 for varints. For example, an int64 in field 1 with the value 300 is ``08
    ac 02``.
    """

    path: str
    type: str
    fixed: int = 0
    zigzag: bool = False
    bounds: tuple[int, int] | None = None

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        if pt.is_decimal(array.type):
            halves = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset).reshape(-1, 2)
            numbers, bad = halves[:, 0].copy(), halves[:, 1] != 0
        else:
            numbers = integers(array)
            bad = None if self.bounds is None else (numbers < self.bounds[0]) | (numbers > self.bounds[1])
        if bad is not None:
            writer.refuse(bad, self.path, array, f"is out of range for {self.type}", keep)
        if self.fixed:
            words = numbers.view(np.uint64)
            _write_fixed(writer, tag, words if self.fixed == 64 else words & 0xFFFFFFFF, self.fixed, keep, presence)
        else:
            words = zigzag(numbers).view(np.uint64) if self.zigzag else numbers.view(np.uint64)
            _write_varints(writer, tag, words, keep, presence)


@dataclass(frozen=True, slots=True)
class FloatingType:
    """float and double, from floats and from integers that they hold exactly."""

    bits: int

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        values = floats(array) if pt.is_floating(array.type) else integers(array)
        size = self.bits // 8
        words = values.astype(f"f{size}", copy=False).view(f"u{size}").astype(np.uint64, copy=False)
        _write_fixed(writer, tag, words, self.bits, keep, presence)


@dataclass(frozen=True, slots=True)
class BooleanType:
    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        numbers = bits_of(array, 1) if pt.is_boolean(array.type) else np.zeros(len(array), np.uint8)
        _write_varints(writer, tag, numbers.astype(np.uint64), keep, presence)


@dataclass(frozen=True, slots=True)
class BytesType:
    """string (``text`` is true) and bytes."""

    path: str
    text: bool

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        column, lengths, missing = spans(array, keep)
        bad = invalid_utf8(column, missing) if self.text else None
        if bad is not None:
            writer.refuse(bad, self.path, column, NOT_UTF8)
        _write_varints(writer, tag, lengths.view(np.uint64), keep, presence)
        writer.column(column, missing)


@dataclass(frozen=True, slots=True)
class EnumSymbol:
    """An enum, from its symbols."""

    path: str
    type: str
    symbols: pa.BinaryArray
    numbers: pa.Int32Array

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        found = pc.index_in(binary_column(array), value_set=self.symbols)
        known = mask_of(found)
        places = integers(found)
        if known is not None:
            writer.refuse(known == 0, self.path, array, f"is not a symbol of enum {self.type}", keep)
            places = places & known.view(np.int64)
        numbers = integers(self.numbers)[places]
        _write_varints(writer, tag, numbers.view(np.uint64), keep, presence)


@dataclass(frozen=True, slots=True)
class EnumNumber:
    """An enum, from numbers. ``numbers``: the numbers of a closed enum; None for an open enum, which takes every
    number."""

    path: str
    type: str
    numbers: pa.Int32Array | None

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        numbers = integers(array)
        if self.numbers is not None:
            bad = ~np.isin(numbers, integers(self.numbers))
            writer.refuse(bad, self.path, array, f"is not a number of enum {self.type}", keep)
        _write_varints(writer, tag, numbers.view(np.uint64), keep, presence)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """google.protobuf.Timestamp: seconds rounded down, nanoseconds from 0 on."""

    path: str

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        per_second = PER_SECOND[array.type.unit]
        numbers = integers(array)
        seconds = numbers // per_second
        bad = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)
        writer.refuse(bad, self.path, array, "is not in the years 0001 to 9999 of a Timestamp", keep)
        _write_time(writer, tag, seconds, (numbers - seconds * per_second) * (_NANOS // per_second), keep)


@dataclass(frozen=True, slots=True)
class Duration:
    """google.protobuf.Duration: seconds and nanoseconds of the same sign."""

    path: str

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        per_second = PER_SECOND[array.type.unit]
        numbers = integers(array)
        rest = np.fmod(numbers, per_second)
        seconds = (numbers - rest) // per_second
        bad = (seconds < -_MAX_DURATION_S) | (seconds > _MAX_DURATION_S)
        writer.refuse(bad, self.path, array, "is longer than the 10,000 years of a Duration", keep)
        _write_time(writer, tag, seconds, rest * (_NANOS // per_second), keep)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """google.protobuf.StringValue and the other wrappers, which are messages around one value."""

    tag: bytes
    value: FieldType

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        inner = RowWriter(writer.rows, writer)
        self.value.write_value(inner, self.tag, array, keep, presence=False)
        _write_message(writer, tag, inner, keep)


@dataclass(frozen=True, slots=True)
class Message:
    """A message, from a struct. ``fields``: its fields, by number. ``oneofs``: the path and the places of each
    oneof."""

    fields: tuple[FieldKernel, ...]
    oneofs: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def write_value(self, writer: RowWriter, tag: bytes, array: pa.Array, keep: Mask | None, presence: bool) -> None:
        inner = RowWriter(writer.rows, writer)
        self.write(inner, array, keep)
        _write_message(writer, tag, inner, keep)

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        columns = array.flatten()  # respects slices; children of a null struct become null
        for path, places in self.oneofs:
            self._check(writer, path, [plain(columns[place]) for place in places], array, keep)
        for field in self.fields:
            field.write_fields(writer, array, columns, keep)

    @staticmethod
    def _check(writer: RowWriter, path: str, columns: list[pa.Array], array: pa.Array, keep: Mask | None) -> None:
        count = np.zeros(writer.rows, np.uint64)
        for column in columns:
            present = mask_of(column)
            count += 1 if present is None else present & 1
        writer.refuse(count > 1, path, array, "has more than one column of a oneof that is not null", keep)


@dataclass(frozen=True, slots=True)
class Singular:
    """A field that is not repeated. ``presence``: whether the default of its type is written."""

    tag: bytes
    kind: FieldType
    path: str
    presence: bool = False
    required: bool = False

    def plan_field(self, place: int) -> PlannedField:
        """The field of a message whose column is at ``place``, and its part in a run of similar fields."""
        match self.kind:
            case IntegerType(fixed=0, bounds=None, zigzag=zigzag):
                kind = RunKind(zigzag, self.presence)
            case BytesType(text=text):
                kind = RunKind(False, self.presence, NOT_UTF8 if text else "")
            case _:
                return PlannedField(place, self)
        refusal = REQUIRED if self.required else ""
        return PlannedField(place, self, kind, RunField(self.path, self.tag, b"", refusal))

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        present = mask_of(array)
        if self.required and present is not None:
            writer.refuse(present == 0, self.path, array, REQUIRED, keep)
        if not pt.is_null(array.type):
            self.kind.write_value(writer, self.tag, array, both(keep, present), self.presence)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated field. ``packed``: whether there is one tag for all elements instead of one for each. ``path``: the
    name of an element in errors."""

    tag: bytes
    element: FieldType
    packed: bool
    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        if pt.is_null(array.type):
            return
        counts, elements = list_elements(only(array, keep))
        elements = plain(elements)
        inner = RowWriter(len(elements), writer, counts)
        present = _without_nulls(inner, self.path, elements)
        if not pt.is_null(elements.type):
            tag = b"" if self.packed else self.tag
            self.element.write_value(inner, tag, elements, present, presence=True)
        lists = lists_of(inner, counts)
        if self.packed:
            _write_varints(writer, self.tag, slot_lengths(lists).astype(np.uint64), None, presence=False)
        writer.column(lists)


@dataclass(frozen=True, slots=True)
class Map:
    """A map, whose entries are messages of key and value."""

    tag: bytes
    entry: Message
    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        if pt.is_null(array.type):
            return
        counts, entries = list_elements(only(array, keep))
        keys, values = (plain(column) for column in entries.flatten())
        inner = RowWriter(len(entries), writer, counts)
        refuse_repeated_keys(inner, self.path, counts, keys)
        present = _without_nulls(inner, f"{self.path}.value", values)
        self.entry.write_value(inner, self.tag, entries, present, presence=True)
        writer.column(lists_of(inner, counts))


def _without_nulls(inner: RowWriter, path: str, elements: pa.Array) -> Mask | None:
    """The elements to write. Refuses the rows that have a null element."""
    present = mask_of(elements)
    if present is not None:
        inner.refuse(present == 0, path, elements, NO_ELEMENT)
    return present


def _write_varints(writer: RowWriter, tag: bytes, numbers: Words, keep: Mask | None, presence: bool) -> None:
    write_varints(writer, numbers, keep if presence else _not_zero(numbers, keep), tag)


def _write_fixed(writer: RowWriter, tag: bytes, words: Words, bits: int, keep: Mask | None, presence: bool) -> None:
    if not presence:
        keep = _not_zero(words, keep)
    if 8 * len(tag) + bits > WORD_BITS:
        writer.fixed(tag, keep)
        tag = b""
    write_words(writer, words, bits, bits // 8, keep, tag)


def _write_message(writer: RowWriter, tag: bytes, message: RowWriter, keep: Mask | None) -> None:
    _write_varints(writer, tag, message.lengths().view(np.uint64), keep, presence=True)
    writer.append(message)


def _write_time(writer: RowWriter, tag: bytes, seconds: Int64Array, nanos: Int64Array, keep: Mask | None) -> None:
    inner = RowWriter(writer.rows, writer)
    _write_varints(inner, b"\x08", seconds.view(np.uint64), keep, presence=False)
    _write_varints(inner, b"\x10", nanos.view(np.uint64), keep, presence=False)
    _write_message(writer, tag, inner, keep)


def _not_zero(numbers: Words, keep: Mask | None) -> Mask | None:
    if numbers.min(initial=1):
        return keep
    return both(keep, np.negative((numbers != 0).astype(np.uint64)))
