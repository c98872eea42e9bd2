"""The stage of every task that makes binary columns of keys and values, and header sections of headers.

Structs have become columns of bytes before, in ``encode_formats.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.arrays import binary_column, int32_array, null_mask
from spark_kafka_sink.records.encode import NULL_HEADER, header_column, header_entries
from spark_kafka_sink.spark.options import Reason
from spark_kafka_sink.spark.rows import (
    ILLEGAL_ARGUMENT,
    BoolArray,
    FaultKind,
    RejectedRows,
    TaskRows,
    number_errors,
    reject,
)

_HEADER: Final = FaultKind(Reason.INVALID_HEADER, ILLEGAL_ARGUMENT, "HEADER_CONVERTER")


class RawEncoder:
    """The stage that makes bytes of keys, values and headers. A row with a header without a key is rejected, or the
    task fails.
    """

    def __init__(self, rejects: Collection[Reason] = frozenset()) -> None:
        self._rejects = rejects

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        columns = rows.columns
        key = None if columns.key is None else binary_column(columns.key)
        rows = replace(rows, columns=replace(columns, key=key, value=binary_column(columns.value)))
        yield rows if columns.headers is None else self._encode_headers(rows, columns.headers)

    def _encode_headers(self, rows: TaskRows, column: pa.Array) -> TaskRows:
        with number_errors(rows.first_row):
            try:
                sections = header_column(column)
            except InvalidRecordError:
                if not header_entries(column)[1].null_count:
                    raise
                column, bad = _drop_null_keys(column)
                found = np.flatnonzero(bad)
                rows = rows.rejecting(reject(self._rejects, _HEADER, found, [NULL_HEADER] * len(found)))
                sections = header_column(column)
        rejected = tuple(map(_encode_own_headers, rows.rejected))
        return replace(rows, columns=replace(rows.columns, headers=sections), rejected=rejected)


def _encode_own_headers(rejected: RejectedRows) -> RejectedRows:
    """The rejected rows, their headers encoded if they have columns of their own. These rows are dead letters already,
    so headers without a key are left out instead of refused."""
    if (columns := rejected.columns) is None or columns.headers is None:
        return rejected
    return rejected._replace(columns=replace(columns, headers=header_column(_drop_null_keys(columns.headers)[0])))


def _drop_null_keys(array: pa.Array) -> tuple[pa.ListArray, BoolArray]:
    """``array`` without the headers whose key is null, and which rows had one."""
    counts, keys, values = header_entries(array)
    missing = null_mask(keys)
    lost = np.bincount(np.repeat(np.arange(len(counts)), counts)[missing], minlength=len(counts))
    kept = int32_array(np.flatnonzero(~missing).astype(np.int32))
    entries = pa.StructArray.from_arrays([keys.take(kept), values.take(kept)], ["key", "value"])
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts - lost, out=offsets[1:])
    return pa.ListArray.from_arrays(int32_array(offsets), entries), lost > 0
