"""What writes a column of one Arrow type as one Avro type: the nodes of an encoder, for null, nested and fixed parts.

``avro_values.py`` has those of single values. Pickled with the encoder: plain data, no schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.encoding.row_writer import Mask, RowWriter, both, mask_of
from spark_kafka_sink.encoding.varints import write_zigzag
from spark_kafka_sink.records.columns import Int64Array, binary_array, raw_numbers


class Kernel(Protocol):
    """Writes one field of all rows."""

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
        array = plain_array(array)
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
        array = plain_array(array)
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
        array, counts = _emptied(array, keep)
        inner = RowWriter(int(counts.sum()), writer, counts)
        self.item.write(inner, array.flatten(), None)
        write_blocks(writer, inner, counts, keep)


@dataclass(frozen=True, slots=True)
class Entries:
    """A map: one block of keys and values, in Arrow's order."""

    path: str
    key: Kernel
    value: Kernel

    def write(self, writer: RowWriter, array: pa.Array, keep: Mask | None) -> None:
        kind = array.type
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        array, counts = _emptied(array, keep)
        keys, values = array.flatten().flatten()
        keys = plain_array(keys)
        inner = RowWriter(int(counts.sum()), writer, counts)
        self._refuse_duplicates(inner, keys, counts)
        self.key.write(inner, keys, None)
        self.value.write(inner, values, None)
        write_blocks(writer, inner, counts, keep)

    def _refuse_duplicates(self, inner: RowWriter, keys: pa.Array, counts: Int64Array) -> None:
        """A reader would keep one of two equal keys."""
        if not inner.rows or int(counts.max()) < 2:
            return
        codes = keys.dictionary_encode().indices
        row_numbers = np.repeat(np.arange(len(counts)), counts)
        numbers = row_numbers * len(keys) + raw_numbers(codes, np.int32)
        order = np.argsort(numbers, kind="stable")
        again = np.zeros(len(keys), np.bool_)
        again[order[1:]] = np.diff(numbers[order]) == 0
        if again.any():
            inner.refuse(again, f"{self.path}.key", keys, "is twice in the map")


def write_blocks(writer: RowWriter, inner: RowWriter, counts: Int64Array, keep: Mask | None) -> None:
    """``counts[i]`` rows of ``inner`` as the items of row ``i``."""
    starts, data = inner.finish()
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    write_zigzag(writer, counts, np.negative((counts > 0).astype(np.uint64)))
    writer.column(binary_array(starts[ends], data))
    writer.fixed(b"\0", keep)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary, of runs, or of an extension."""
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    return plain_type(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else kind


def plain_array(array: pa.Array) -> pa.Array:
    """The array as ``plain_type`` of its type."""
    kind = array.type
    if pt.is_dictionary(kind):
        return plain_array(array.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return plain_array(pc.run_end_decode(array))
    return plain_array(array.storage) if isinstance(kind, pa.BaseExtensionType) else array


def _emptied(array: pa.Array, keep: Mask | None) -> tuple[pa.Array, Int64Array]:
    """Lists without items outside ``keep``, and the number of items of each."""
    lengths = pc.list_value_length(array)
    counts: Int64Array = raw_numbers(lengths, np.int64 if lengths.type == pa.int64() else np.int32).astype(np.int64)
    present = mask_of(lengths)
    if present is not None:
        counts &= present.view(np.int64)
    if keep is None or not (counts & ~keep.view(np.int64)).any():
        return array, counts
    rows = np.arange(len(array), dtype=np.int32)
    validity = pa.py_buffer(np.packbits(keep != 0, bitorder="little"))
    kept = pa.Int32Array.from_buffers(pa.int32(), len(rows), [validity, pa.py_buffer(rows)])
    return array.take(kept), counts & keep.view(np.int64)
