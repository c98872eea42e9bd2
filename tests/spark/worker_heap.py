"""A partitioner that tells what Spark's garbage collection after a task has to go through in the worker that writes."""

import gc

import numpy as np

LITTLE, ALL = 1, 0
"""Partitions."""


class ByHeap:
    def partition(self, topic, columns, explicit, sizes, count, load):
        return np.full(len(columns), LITTLE if 2 * len(gc.get_objects()) < gc.get_freeze_count() else ALL)
