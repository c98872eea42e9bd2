"""Arrow arrays of any layout as an encoder reads them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.encoding.row_writer import Mask, mask_of
from spark_kafka_sink.records.columns import Int64Array, binary_column, raw_numbers


def plain(array: pa.Array) -> pa.Array:
    """Without the layouts that only save memory, dictionaries and run ends, and of extension types the storage."""
    while True:
        if pt.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pt.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        else:
            return array


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that arrays of the same values have, whatever their layout: small, without dictionaries.

    Lists of entries and maps stay different; nullability and metadata are dropped.
    """
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
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


def list_elements(array: pa.Array) -> tuple[Int64Array, pa.Array]:
    """The number of elements per row (a null list has none), then all elements.

    Entries of maps are structs of ``key`` and ``value``.
    """
    kind = array.type
    if pt.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    lengths = pc.list_value_length(array)
    counts: Int64Array = raw_numbers(lengths, np.int64 if pt.is_int64(lengths.type) else np.int32).astype(np.int64)
    present = mask_of(lengths)
    if present is not None:
        counts = counts & present.view(np.int64)
    # Respects slices, and leaves out the slots that a null list spans.
    return counts, array.flatten()


def repeated_keys(counts: Int64Array, keys: pa.Array) -> npt.NDArray[np.bool_]:
    """True for a key that its map has had before."""
    again = np.zeros(len(keys), np.bool_)
    if int(counts.max(initial=0)) < 2:
        return again
    texts = pt.is_string_view(keys.type) or pt.is_binary_view(keys.type)  # which are not hashed
    codes = (binary_column(keys) if texts else keys).dictionary_encode().indices
    maps = np.repeat(np.arange(len(counts)), counts)
    pairs = maps * len(keys) + raw_numbers(codes, np.int32)
    order = np.argsort(pairs, kind="stable")
    ordered = pairs[order]
    again[order[1:][ordered[1:] == ordered[:-1]]] = True
    return again


def only(array: pa.Array, keep: Mask | None) -> pa.Array:
    """The array with nulls outside ``keep``: run ends in a null struct are not null by themselves."""
    present = mask_of(array)
    if keep is None or (present is not None and not (present & ~keep).any()):
        return array
    dropped = pa.py_buffer(np.packbits(keep == 0, bitorder="little"))
    mask = pa.BooleanArray.from_buffers(pa.bool_(), len(array), [None, dropped])
    return pa.StructArray.from_arrays([array], ["kept"], mask=mask).flatten()[0]
