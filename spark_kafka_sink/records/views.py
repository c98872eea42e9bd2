"""Arrow's binary views, made with numpy: slots in any order that are copied once, into one buffer of their size.

A view is 16 bytes: an int32 length, then up to 12 bytes of data, or (here) 4 unused ones, the number of a buffer and
the position in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import Int32Array, Integers, Order, int32_array

Views: TypeAlias = npt.NDArray[np.void]

INLINE_BYTES = 12
VIEW = np.dtype("V16")
_LENGTH_BYTES = 4

CAN_JOIN = int(pa.__version__.split(".")[0]) >= 19
"""False for pyarrow 18, which cannot make an array of views from buffers."""


def slot_views(array: pa.BinaryArray, order: Order, buffer: int) -> Views:
    """Slot ``order[i]`` of ``array``, without nulls. ``buffer``: the number under which ``join`` gets its data."""
    bounds = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    starts = bounds[order]
    lengths = bounds[order + 1] - starts
    if int(lengths.max(initial=0)) <= INLINE_BYTES:
        return _inline(array, bounds, starts, lengths)
    fields = np.empty((len(order), 2), np.uint64)
    fields[:, 1] = starts
    fields[:, 1] <<= np.uint64(32)
    fields[:, 1] |= np.uint64(buffer)
    views: Views = fields.view(VIEW)[:, 0]
    _set_lengths(views, lengths)
    short = np.flatnonzero(lengths <= INLINE_BYTES)
    if len(short):
        few = array.take(int32_array(order[short].astype(np.int32)))
        views[short] = slot_views(few, np.arange(len(few)), buffer)
    return views


def join(views: Views, buffers: Sequence[pa.Buffer]) -> pa.BinaryArray:
    """The views as slots of one new buffer: at most 2 GiB (beyond that, Arrow's error)."""
    laid_out = [None, pa.py_buffer(views.view(np.uint8)), *buffers]
    return pa.Array.from_buffers(pa.binary_view(), len(views), laid_out, null_count=0).cast(pa.binary())


def _inline(array: pa.BinaryArray, bounds: Int32Array, starts: Int32Array, lengths: Int32Array) -> Views:
    """Views of slots of at most ``INLINE_BYTES`` each; the bytes behind a slot are arbitrary."""
    first, end = int(bounds[0]), int(bounds[-1])
    data = np.zeros(_LENGTH_BYTES + end - first + INLINE_BYTES, np.uint8)
    if end > first:
        data[_LENGTH_BYTES:-INLINE_BYTES] = np.frombuffer(array.buffers()[2], np.uint8, end - first, first)
    # 16 bytes are read from each place: the length overwrites the 4 in front of the slot.
    places: Views = np.ndarray((len(data) - VIEW.itemsize + 1,), VIEW, data, strides=(1,))
    views = places[starts.astype(np.int64) - first]
    _set_lengths(views, lengths)
    return views


def _set_lengths(views: Views, lengths: Integers) -> None:
    views.view(np.int32).reshape(-1, 4)[:, 0] = lengths
