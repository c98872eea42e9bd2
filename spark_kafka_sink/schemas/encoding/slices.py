"""Encodes a column in slices of 10,000 rows, as Spark's Arrow batches have by default; fewer where rows are large.

More rows would not fit the CPU's caches; fewer would cost more, because each slice takes 0.4 ms by itself. For the same
reason, small chunks are joined first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import (
    binary_array,
    is_any_list,
    is_view,
    list_elements,
    null_mask,
    plain,
    undecodable,
)
from spark_kafka_sink.schemas.encoding.columns import plain_type
from spark_kafka_sink.schemas.encoding.encoder import Fault, SchemaMismatchError, UnencodableRowsError
from spark_kafka_sink.schemas.encoding.row_writer import Kernel, Mask, RowWriter, mask_of

_SLICE_ROWS: Final = 10_000
_SLICE_BYTES: Final = 64 << 20
_SMALL_BYTES: Final = 1 << 20
_MAX_BYTES: Final = (1 << 31) - 1
_SLOT_BYTES: Final = 8
_TOO_LARGE: Final = "more than 2 GiB of encoded rows: encode fewer rows at once"


def encode_rows(
    kernel: Kernel, array: pa.Array | pa.ChunkedArray, prefix: bytes, faults: list[Fault] | None = None
) -> pa.BinaryArray:
    """``prefix`` and what the kernel writes for each row, by the rules of ``Encoder.encode``.

    Raises ``SchemaMismatchError`` for layouts that Arrow cannot decode.
    """
    if problems := undecodable(array.type):
        raise SchemaMismatchError(problems)
    refused: list[Fault] = []
    encoded: list[pa.BinaryArray] = []
    row = size = 0
    for chunk in _joined(array) if isinstance(array, pa.ChunkedArray) else [array]:
        for rows in _slices(chunk):
            values = plain(rows)
            keep = mask_of(values)
            writer = RowWriter(len(values))
            writer.fixed(prefix, keep)
            kernel.write(writer, values, keep)
            new = sorted(writer.faults.values())
            if row:
                new = [fault._replace(row=row + fault.row) for fault in new]
            row += len(values)
            if new and faults is not None:
                faults += new
                keep = _without(keep, writer)
            else:
                refused += new
            if refused:
                continue  # the error names the faulty rows of all slices
            starts, data = writer.finish()
            size += int(starts[-1]) - int(starts[0])  # a slice may begin anywhere in its data
            if size > _MAX_BYTES:
                raise InvalidRecordError(_TOO_LARGE)
            encoded.append(binary_array(starts, data, None if keep is None else keep == 0))
    if refused:
        raise UnencodableRowsError(refused)
    if len(encoded) == 1:
        return encoded[0]
    return pa.concat_arrays(encoded) if encoded else binary_array(np.zeros(1, np.int32), b"")


def _without(keep: Mask | None, writer: RowWriter) -> Mask:
    """The rows of ``keep`` that have no fault."""
    mask = np.full(writer.rows, -1, np.int64).view(np.uint64) if keep is None else keep.copy()
    mask[list(writer.faults)] = 0
    return mask


def _joined(array: pa.ChunkedArray) -> Iterator[pa.Array]:
    """The chunks, of which neighbours are joined while a slice has room for their rows and bytes."""
    held: list[pa.Array] = []
    rows = size = 0
    for chunk in array.chunks:
        # What a chunk's buffers hold is an upper bound of its bytes that takes a tenth of the time.
        held_bytes = chunk.get_total_buffer_size()
        if held_bytes > _SMALL_BYTES:
            held_bytes = chunk.nbytes
        rows, size = rows + len(chunk), size + held_bytes
        if held and (rows > _SLICE_ROWS or size > _SLICE_BYTES):
            yield from _concatenated(held)
            held, rows, size = [], len(chunk), held_bytes
        held.append(chunk)
    yield from _concatenated(held)


def _concatenated(chunks: list[pa.Array]) -> list[pa.Array]:
    try:
        return [pa.concat_arrays(chunks)] if len(chunks) > 1 else chunks
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
    ):  # dictionaries with more values than their indexes can number
        return chunks


def _slices(array: pa.Array) -> Iterator[pa.Array]:
    for start in range(0, len(array), _SLICE_ROWS):
        yield from _halves(array.slice(start, _SLICE_ROWS))


def _halves(array: pa.Array) -> Iterator[pa.Array]:
    size = _bytes(array)
    if len(array) > 1 and size > _SLICE_BYTES:
        half = len(array) // 2
        yield from _halves(array.slice(0, half))
        yield from _halves(array.slice(half))
    elif size > _MAX_BYTES:
        raise InvalidRecordError(_TOO_LARGE)
    else:
        yield array


def _bytes(array: pa.Array) -> int:
    """Estimates the bytes of the values, including those of strings and of the elements of lists."""
    kind = array.type
    if pt.is_struct(kind):
        return sum(_bytes(each) for each in array.flatten())
    if is_any_list(kind) or pt.is_map(kind):
        return _bytes(list_elements(array)[1])
    if pt.is_dictionary(kind):
        return len(array) * _largest(array.dictionary)
    if pt.is_run_end_encoded(kind):
        return _bytes(pc.run_end_decode(array))
    if is_view(kind):  # their buffers may be another array's too
        return int(_view_lengths(array)[~null_mask(array)].sum(dtype=np.int64))
    return int(array.nbytes)


def _largest(values: pa.Array) -> int:
    """The bytes of the largest value, if the values are strings."""
    kind = values.type
    if is_view(kind):
        return int(_view_lengths(values).max(initial=0))
    if plain_type(kind) in (pa.string(), pa.binary()) and not pt.is_fixed_size_binary(kind):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return _SLOT_BYTES


def _view_lengths(array: pa.Array) -> npt.NDArray[np.int32]:
    """The lengths of views; a null slot has any number."""
    if not len(array):
        return np.zeros(0, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, 4 * len(array), 16 * array.offset)[::4]
