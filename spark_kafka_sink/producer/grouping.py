"""Rows of several partitions → runs of neighbouring rows of one partition. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.accumulator.claim import Run

_FEW_ROWS_PER_RUN = 32


def group_by_partition(partitions: npt.NDArray[np.int32]) -> tuple[list[Run], npt.NDArray[np.intp] | None]:
    """The runs, and the stable order of the rows they stand in; None: the order they already have.

    Unkeyed rows come in long runs (sticky partitioning): those are not sorted, and a partition may have several runs.
    """
    runs = _runs(partitions)
    if len(runs) * _FEW_ROWS_PER_RUN <= len(partitions) or len(runs) == 1:
        return runs, None
    # numpy sorts 16-bit integers by radix, wider ones several times slower
    narrow = partitions.astype(np.uint16) if int(partitions.max()) < 1 << 16 else partitions
    order = np.argsort(narrow, kind="stable")
    return _runs(partitions[order]), order


def _runs(partitions: npt.NDArray[np.int32]) -> list[Run]:
    starts = np.concatenate(([0], np.flatnonzero(partitions[1:] != partitions[:-1]) + 1))
    firsts = partitions[starts].tolist()
    bounds = [*starts.tolist(), len(partitions)]
    return [Run(*run) for run in zip(firsts, bounds, bounds[1:], strict=False)]
