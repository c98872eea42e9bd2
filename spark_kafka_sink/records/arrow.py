"""Arrow arrays from Python and numpy without ``pyarrow.array``.

That function imports pandas where it is installed, to ask whether it was given a pandas object: 0.8 s once in every
Python worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def int32_array(numbers: npt.NDArray[np.int32]) -> pa.Int32Array:
    """Without a copy; without nulls."""
    return pa.Int32Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)], null_count=0)


def binary_array(
    offsets: npt.NDArray[np.int32], data: object, missing: npt.NDArray[np.bool_] | None = None
) -> pa.BinaryArray:
    """``len(offsets) - 1`` slots of ``data``, a buffer; those in ``missing`` are null."""
    validity = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def bytes_column(values: Sequence[bytes | None]) -> pa.BinaryArray:
    """One slot per value; at most 2 GiB in all."""
    missing = None
    try:
        data = b"".join(values)  # type: ignore[arg-type]
    except TypeError:
        missing = np.fromiter((value is None for value in values), np.bool_, len(values))
        values = [value or b"" for value in values]
        data = b"".join(values)  # type: ignore[arg-type]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])  # type: ignore[arg-type]
    return binary_array(offsets, data, missing)


def raw_numbers(array: pa.Array, kind: type[np.signedinteger]) -> npt.NDArray[np.signedinteger]:
    """A copy of a primitive array's values; what stands under a null is anything."""
    count = array.offset + len(array)
    return np.frombuffer(array.buffers()[1], kind, count)[array.offset :].copy() if count else np.zeros(0, kind)


def null_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True where a slot is null, read from the validity bitmap (``Array.to_numpy`` would import pandas)."""
    validity = array.buffers()[0]
    if validity is None:
        return np.zeros(len(array), np.bool_)
    end = array.offset + len(array)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little", count=end)
    missing: npt.NDArray[np.bool_] = bits[array.offset : end] == 0
    return missing
