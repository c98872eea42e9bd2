"""What writes a column of one Arrow type as one Avro type: the nodes of an encoder, for null, nested and fixed parts.

``avro_values.py`` has those of single values. Pickled with the encoder: plain data, no schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records.columns import Int64Array, binary_array
from spark_kafka_sink.schemas.encoding.columns import list_elements, only, plain, repeated_keys
from spark_kafka_sink.schemas.encoding.row_writer import Mask, RowWriter, both, mask_of
from spark_kafka_sink.schemas.encoding.varints import write_zigzag


class Kernel(Protocol):
    """Writes one field of all rows, at least one."""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        """A slot of ``array`` per row of ``keep``. Values may be null in other rows only."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Avro's null, and a record without fields."""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        """No bytes."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A default, or null, for a column that the rows lack."""

    data: bytes

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        writer.fixed(self.data, keep)


@dataclass(frozen=True, slots=True)
class Required:
    """Values of a schema without null. ``index``: of the branch, in a union without null."""

    path: str
    schema: str
    value: Kernel
    index: bytes = b""

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        present = mask_of(array)
        if present is not None:
            missing = present == 0 if keep is None else (keep & ~present) != 0
            writer.refuse(missing, self.path, array, f"is not allowed: the schema says {self.schema}, without null")
            keep = both(keep, present)
        writer.fixed(self.index, keep)
        self.value.write(writer, array, keep)


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a union, and its null. ``null``, ``index``: the branches, as the schema has them."""

    null: bytes
    index: bytes
    value: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        array = plain(array)
        present = mask_of(array)
        if present is None:
            writer.fixed(self.index, keep)
        elif len(self.null) == len(self.index) == 1:
            null, index = self.null[0], self.index[0]
            branches = present & index if not null else (present & index) | (~present & null)
            writer.words(branches if keep is None else branches & keep, 8 if keep is None else keep & 8, 8)
        else:
            writer.fixed(self.index, both(keep, present))
            writer.fixed(self.null, both(keep, ~present))
        self.value.write(writer, array, both(keep, present))


@dataclass(frozen=True, slots=True)
class RecordFields:
    """A struct. ``fields``: in the schema's order; each with its place in the struct, -1 if the struct lacks it."""

    fields: tuple[tuple[int, Kernel], ...]

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        columns = array.flatten()  # respects slices; children of a null struct become null
        for place, kernel in self.fields:
            kernel.write(writer, array if place < 0 else columns[place], keep)


@dataclass(frozen=True, slots=True)
class Items:
    """An array: one block, as other writers lay it out: count, items, 0; only 0 if it is empty."""

    item: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        counts, items = list_elements(only(array, keep))
        inner = RowWriter(len(items), writer, counts)
        if len(items):
            self.item.write(inner, items, None)
        _write_blocks(writer, inner, counts, keep)


@dataclass(frozen=True, slots=True)
class Entries:
    """A map: one block of keys and values, in Arrow's order."""

    path: str
    key: Kernel
    value: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        counts, entries = list_elements(only(array, keep))
        keys, values = entries.flatten()
        keys = plain(keys)
        inner = RowWriter(len(entries), writer, counts)
        again = repeated_keys(counts, keys)
        if again.any():
            inner.refuse(again, self.path, keys, "is twice in the map: a reader would keep one of them")
        if len(entries):
            self.key.write(inner, keys, None)
            self.value.write(inner, values, None)
        _write_blocks(writer, inner, counts, keep)


def _write_blocks(writer: RowWriter, inner: RowWriter, counts: Int64Array, keep: Mask | None) -> None:
    """``counts[i]`` rows of ``inner`` as the items of row ``i``."""
    starts, data = inner.finish()
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    write_zigzag(writer, counts, np.negative((counts > 0).astype(np.uint64)))
    writer.column(binary_array(starts[ends], data))
    writer.fixed(b"\0", keep)
