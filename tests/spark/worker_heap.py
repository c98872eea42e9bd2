"""A partitioner that tells what Spark's garbage collection after a task has to go through in the worker that writes."""

import gc

import numpy as np

LITTLE, ALL = 1, 0
"""Partitions."""


class ByHeap:
    """Leaves tuples out: Spark 4.0 lists every zip file on the path anew before each task, 12,000 tuples of file names
    and numbers, which the first collection stops tracking."""

    def partition(self, topic, columns, named, sizes, count, load):
        looked_at = sum(type(each) is not tuple for each in gc.get_objects())
        return np.full(len(columns), LITTLE if 2 * looked_at < gc.get_freeze_count() else ALL)
