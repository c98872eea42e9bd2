"""Kernels of Avro's enum, fixed and duration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.records.columns import binary_column, bytes_column, null_mask, raw_numbers
from spark_kafka_sink.schemas.encoding.columns import integers, spans
from spark_kafka_sink.schemas.encoding.row_writer import Mask, RowWriter, Words
from spark_kafka_sink.schemas.encoding.varints import write_zigzag

_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
_MILLIS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""Milliseconds: a unit's number multiplied and divided."""
_UINT32_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Enum:
    """A symbol by its number."""

    path: str
    schema: str
    symbols: tuple[str, ...]

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column = binary_column(array)
        numbers = pc.index_in(column, value_set=bytes_column([each.encode() for each in self.symbols]))
        if numbers.null_count:
            unknown = null_mask(numbers)
            if keep is not None:
                unknown &= keep != 0
            writer.refuse(unknown, self.path, array, f"is not a symbol of {self.schema}: {', '.join(self.symbols)}")
        write_zigzag(writer, raw_numbers(numbers, np.int32).astype(np.int64), keep)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Bytes of one length."""

    path: str
    schema: str
    size: int

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        column, lengths, missing = spans(array, keep)
        bad = lengths != self.size if keep is None else (lengths != self.size) & (keep != 0)
        if bad.any():
            writer.refuse(bad, self.path, array, f"does not have the {self.size} bytes of {self.schema}")
        writer.column(column, missing)


@dataclass(frozen=True, slots=True)
class Duration:
    """Months, days and milliseconds, unsigned, in 12 bytes: of an Arrow interval or duration."""

    path: str

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        days: Words = np.zeros(len(array), np.uint64)
        factor, divisor = 1, 1_000_000
        if pt.is_duration(array.type):
            parts = integers(array)
            bad = parts < 0
            factor, divisor = _MILLIS[array.type.unit]
        else:
            data = np.frombuffer(array.buffers()[1], _INTERVAL, len(array), array.offset * _INTERVAL.itemsize)
            parts = data["nanos"]
            bad = (data["months"] < 0) | (data["days"] < 0) | (parts < 0)
            days = data["months"].astype(np.uint64) | (data["days"].astype(np.uint64) << 32)
        millis = parts // divisor
        bad |= (millis > _UINT32_MAX // factor) | (millis * divisor != parts)
        if bad.any():
            reason = "does not fit duration: no part may be negative or, in milliseconds, have a fraction or 33 bits"
            writer.refuse(bad if keep is None else bad & (keep != 0), self.path, array, reason)
        for words, bits in ((days, 64), ((millis * factor).view(np.uint64), 32)):
            if keep is None:
                writer.words(words, bits, bits)
            else:
                writer.words(words & keep, keep & bits, bits)
