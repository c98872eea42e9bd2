"""Kernels of single values: one Arrow type as one Avro type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from spark_kafka_sink.schemas.encoding.columns import floats, integers, invalid_utf8, spans
from spark_kafka_sink.schemas.encoding.row_writer import Mask, RowWriter, bits_of
from spark_kafka_sink.schemas.encoding.varints import write_zigzag

LONGS = (-1 << 63, (1 << 63) - 1)
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""By Arrow's unit."""


@dataclass(frozen=True, slots=True)
class Boolean:
    """A byte."""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        bits = bits_of(array, 1).astype(np.uint64)
        if keep is None:
            writer.words(bits, 8, 8)
        else:
            writer.words(bits & keep, keep & 8, 8)


@dataclass(frozen=True, slots=True)
class Integer:
    """int and long, and all logical types that count days or parts of a second.

    A value is multiplied by ``factor``, or divided by ``divisor``: rounded down if ``rounds``, else a remainder is a
    fault. ``bounds``: the least and the largest result.
    """

    path: str
    schema: str
    factor: int = 1
    divisor: int = 1
    rounds: bool = False
    bounds: tuple[int, int] = LONGS

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        numbers = integers(array)
        if self.divisor > 1:
            quotients = numbers // self.divisor
            if not self.rounds:
                self._refuse(writer, array, quotients * self.divisor != numbers, keep)
            numbers = quotients
        low, high = -(-self.bounds[0] // self.factor), self.bounds[1] // self.factor
        if (low, high) != LONGS:
            self._refuse(writer, array, (numbers < low) | (numbers > high), keep)
        write_zigzag(writer, numbers * self.factor if self.factor > 1 else numbers, keep)

    def _refuse(self, writer: RowWriter, array: pa.Array, bad: npt.NDArray[np.bool_], keep: Mask | None) -> None:
        if bad.any():
            writer.refuse(bad if keep is None else bad & (keep != 0), self.path, array, f"does not fit {self.schema}")


@dataclass(frozen=True, slots=True)
class Real:
    """float (``bits`` 32) and double (64), of any number that they hold exactly."""

    path: str
    bits: int

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        kind = np.dtype(f"f{self.bits // 8}")
        if pt.is_integer(array.type):
            numbers = integers(array)
            values = numbers.astype(kind)
            beyond = values >= 2.0**63  # the largest numbers are rounded to one beyond int64
            bad = beyond | (np.where(beyond, 0, values).astype(np.int64) != numbers)
            if bad.any():
                schema = "float" if self.bits == 32 else "double"
                bad = bad if keep is None else bad & (keep != 0)
                writer.refuse(bad, self.path, array, f"has more digits than {schema} holds")
        else:
            values = floats(array).astype(kind, copy=False)
        words = values.view(np.dtype(f"u{self.bits // 8}")).astype(np.uint64, copy=False)
        if keep is None:
            writer.words(words, self.bits, self.bits)
        else:
            writer.words(words & keep, keep & self.bits, self.bits)


@dataclass(frozen=True, slots=True)
class Bytes:
    """bytes, of strings too. ``has_length`` false: as Confluent's serializers write them at the top."""

    has_length: bool = True

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, lengths, missing = spans(array, keep)
        if self.has_length:
            write_zigzag(writer, lengths, keep)
        writer.column(column, missing)


@dataclass(frozen=True, slots=True)
class Text:
    """string, of UTF-8 in bytes too."""

    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, lengths, missing = spans(array, keep)
        bad = invalid_utf8(column, missing)
        if bad is not None:
            writer.refuse(bad, self.path, column, "is not UTF-8")
        write_zigzag(writer, lengths, keep)
        writer.column(column, missing)
