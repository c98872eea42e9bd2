"""The stage ``encode``: key, value and headers become bytes, as they are or by ``keyFormat`` and ``valueFormat``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import binary_column, int32_array, null_mask
from spark_kafka_sink.records.encode import NULL_HEADER, header_column, header_entries
from spark_kafka_sink.spark.dead_letters.options import Reason
from spark_kafka_sink.spark.rows import ILLEGAL_ARGUMENT, BoolArray, FaultKind, RejectedRows, Rows, rows_numbered

_HEADER: Final = FaultKind(Reason.INVALID_HEADER, ILLEGAL_ARGUMENT, "HEADER_CONVERTER")


class RawEncoder:
    """Keys and values are strings or bytes. Rejects, or raises for, a row with a header without a key."""

    def __init__(self, rejects: Collection[Reason] = frozenset()) -> None:
        self._rejects = rejects

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        columns = rows.columns
        key = None if columns.key is None else binary_column(columns.key)
        yield self.as_bytes(replace(rows, columns=replace(columns, key=key, value=binary_column(columns.value))))

    def as_bytes(self, rows: Rows) -> Rows:
        """With the headers as bytes, too."""
        column = rows.columns.headers
        if column is None:
            return rows
        with rows_numbered(rows.first_row):
            try:
                sections = header_column(column)
            except InvalidRecordError:
                if Reason.INVALID_HEADER not in self._rejects or not header_entries(column)[1].null_count:
                    raise
                column, bad = headers_with_keys(column)
                found = np.flatnonzero(bad)
                rows = rows.rejecting(RejectedRows(_HEADER, found, [NULL_HEADER] * len(found)))
                sections = header_column(column)
        return replace(rows, columns=replace(rows.columns, headers=sections))


def headers_with_keys(array: pa.Array) -> tuple[pa.ListArray, BoolArray]:
    """``array`` without the headers whose key is null, and which rows had one."""
    counts, keys, values = header_entries(array)
    missing = null_mask(keys)
    lost = np.bincount(np.repeat(np.arange(len(counts)), counts)[missing], minlength=len(counts))
    kept = int32_array(np.flatnonzero(~missing).astype(np.int32))
    entries = pa.StructArray.from_arrays([keys.take(kept), values.take(kept)], ["key", "value"])
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts - lost, out=offsets[1:])
    return pa.ListArray.from_arrays(int32_array(offsets), entries), lost > 0
