"""Keeps Spark's garbage collection after every task from going through what a Python worker has imported.

``pyspark.daemon`` collects all generations when a task has ended. That visits every object of every module, pandas'
and ours: 20 to 50 ms of CPU for each task of each micro-batch, many times what the sink itself needs.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_COLLECTS: Final = "pyspark.daemon"
"""The program of a worker that is collected; any other process is its owner's."""


_exempted = False
"""To ask ``gc.get_freeze_count`` instead would count every object that is exempt, after each task."""


def exempt_imports() -> None:
    """At the end of a worker's first work for the sink, when all it needs is imported: what lives now is not looked at
    again. It is still freed when nothing refers to it any more, but for cycles among objects of that moment.
    """
    global _exempted
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _COLLECTS and not _exempted:
        _exempted = True
        gc.collect()
        gc.freeze()
