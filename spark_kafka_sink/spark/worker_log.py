"""The sink's log lines in Spark's Python processes, which configure no logging: on stderr, at ``logLevel``."""

from __future__ import annotations

import logging
import sys
from typing import Final

FORMAT: Final = logging.Formatter("%(asctime)s %(levelname)s pykafka: %(message)s", "%y/%m/%d %H:%M:%S")

_own_level: Final[list[int]] = []
"""Before a write with logLevel; the process may be used again by one without."""


class _Stderr(logging.Handler):
    """Silent while the process has handlers: Spark's worker logs, or the user's own logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            sys.stderr.write(self.format(record) + "\n")


_stderr: Final = _Stderr()
_stderr.setFormatter(FORMAT)


def log_at(level: str | None) -> None:
    """Set the level of this package's loggers, in a worker or the driver, before its work.

    None: the process's own level, by default WARNING.
    """
    logger = logging.getLogger("spark_kafka_sink")
    logger.addHandler(_stderr)  # a second time without effect
    if level is not None:
        if not _own_level:
            _own_level.append(logger.level)
        logger.setLevel(level)
    elif _own_level:
        logger.setLevel(_own_level[0])
        _own_level.clear()
