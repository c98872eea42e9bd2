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
    starts = _run_starts(partitions)
    if len(starts) * _FEW_ROWS_PER_RUN <= len(partitions) or len(starts) == 1:
        return _runs(partitions, starts), None
    order = order_by_partition(partitions)
    return runs_as_given(partitions[order]), order


def order_by_partition(partitions: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """Stable."""
    # numpy sorts 16-bit integers by radix, wider ones several times slower
    narrow = partitions.astype(np.uint16) if int(partitions.max()) < 1 << 16 else partitions
    return np.argsort(narrow, kind="stable")


def runs_as_given(partitions: npt.NDArray[np.int32]) -> list[Run]:
    """The runs in the order of the rows, however short they are."""
    return _runs(partitions, _run_starts(partitions))


def _run_starts(partitions: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    return np.concatenate(([0], np.flatnonzero(partitions[1:] != partitions[:-1]) + 1))


def _runs(partitions: npt.NDArray[np.int32], starts: npt.NDArray[np.intp]) -> list[Run]:
    bounds = [*starts.tolist(), len(partitions)]
    return [Run(*run) for run in zip(partitions[starts].tolist(), bounds, bounds[1:], strict=False)]
