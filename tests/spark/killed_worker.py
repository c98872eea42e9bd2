"""A partitioner under which a task's first attempt loses its Python worker."""

import os
import signal
import time

import numpy as np
from pyspark import TaskContext

ROWS_BEFORE = 10_000
"""As many as Spark puts into one Arrow batch."""


class KilledOnce:
    """For rows whose values count up: kill -9 when ``ROWS_BEFORE`` are on their way and had time to arrive."""

    def partition(self, topic, columns, named, sizes, count, load):
        if int(columns.value[0].as_py()) >= ROWS_BEFORE and TaskContext.get().attemptNumber() == 0:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return np.arange(len(columns)) % count
