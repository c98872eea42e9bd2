"""The setup of Spark's Python processes (the workers, and the driver's) for the sink: log lines, the heap, Arrow's
memory, the socket.

These processes configure no logging, so the sink's lines go to stderr. ARCHITECTURE, "What is not obvious", has the
reasons and figures for heap and socket.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from spark_kafka_sink.spark.options import with_prefix

_DAEMON: Final = "pyspark.daemon"
"""The program of a worker, which collects garbage after each task. The heaps of other programs are left alone."""

_ALLOCATOR: Final = "ARROW_DEFAULT_MEMORY_POOL"
_JEMALLOC: Final = "jemalloc"

_OPEN_FILES: Final = "/proc/self/fd"
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux, tcp(7): acknowledge what is pending, and what arrives until the process responds."""

_FORMAT: Final = logging.Formatter("%(asctime)s %(levelname)s pykafka: %(message)s", "%y/%m/%d %H:%M:%S")

_LOGGER: Final = logging.getLogger("spark_kafka_sink")

_own_level: Final[list[int]] = []
"""The level before a write with logLevel, for later writes of the process without it."""

_is_callers = False

_freezes = 0  # gc.get_freeze_count() would count all frozen objects, after each task


class _Stderr(logging.Handler):
    """A handler that writes to stderr, and is silent while the process has handlers of its own, of Spark's worker logs
    or of the user."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            sys.stderr.write(self.format(record) + "\n")


def _in_sparks_names(record: logging.LogRecord) -> bool:
    """A filter that names the producer's options as Spark's, with ``kafka.``. As a filter it also changes the record
    for the process's own handlers. It is not used in the caller's process, which may have producers of its own.
    """
    if not _is_callers:
        errors = record.args if isinstance(record.args, tuple) else ()
        record.msg, record.args = with_prefix(record.getMessage(), *errors), None
    return True


_stderr: Final = _Stderr()
_stderr.setFormatter(_FORMAT)
_stderr.addFilter(_in_sparks_names)


def leave_logging_to_caller() -> None:
    """Leaves the sink's lines to the logger ``spark_kafka_sink``, unless a write sets logLevel. Called in a process,
    such as a notebook, that has its own logging and its own heap.
    """
    global _is_callers
    _is_callers = True


def log_at(level: str | None) -> None:
    """Sets the level of this package's loggers, in a worker or the driver, before its work.

    ``level``: None for the process's own level, by default WARNING. In the caller's process, None also leaves the
    process's handlers as they are. Lines go to stderr only if the user has set a level and the process has no handlers.
    """
    if _is_callers and level is None:
        _LOGGER.removeHandler(_stderr)  # of an earlier write
    else:
        _LOGGER.addHandler(_stderr)  # a second time without effect
    if level is not None:
        if not _own_level:
            _own_level.append(_LOGGER.level)
        _LOGGER.setLevel(level)
    elif _own_level:
        _LOGGER.setLevel(_own_level[0])
        _own_level.clear()


@contextmanager
def callers_level_afterwards() -> Iterator[None]:
    """A block around a write in the caller's process, after which the process has its own log level again, not that of
    logLevel."""
    try:
        yield
    finally:
        if _is_callers:
            log_at(None)


def announce(text: str, level: int = logging.INFO) -> None:
    """Writes one line to the driver's log. Spark's Python processes configure no logging, so without a handler the line
    goes to stderr, which Spark forwards. A higher level of the logger ``spark_kafka_sink`` silences the line.
    """
    if not _LOGGER.level and not _is_callers:
        _LOGGER.setLevel(logging.INFO)
    if _is_callers or _LOGGER.hasHandlers():
        _LOGGER.log(level, "%s", text)
    elif _LOGGER.isEnabledFor(level):
        _write_to_stderr(text, level)


def show_progress(text: str) -> None:
    """Writes one line for the caller of a long write, in the caller's process. A process that has configured no logging
    would drop a line at INFO, so there it goes to stderr.
    """
    if _LOGGER.level or _LOGGER.hasHandlers():
        announce(text)
    else:
        _write_to_stderr(text, logging.INFO)


def _write_to_stderr(text: str, level: int) -> None:
    sys.stderr.write(_FORMAT.format(_LOGGER.makeRecord(_LOGGER.name, level, __file__, 0, text, (), None)) + "\n")


def freeze_imports() -> None:
    """Lets garbage collections skip the objects that exist at the end of the worker's first two works.

    Such objects are still freed by reference count; only cycles among them stay. This is done twice, because PySpark's
    own imports after the first work leave 29,000 more objects, which the collection after each task would go through.
    """
    global _freezes
    if _is_worker() and _freezes < 2:
        _freezes += 1
        gc.collect()
        gc.freeze()


def return_unused_memory() -> None:
    """Lets Arrow allocate from jemalloc in a worker, because jemalloc returns unused pages to the system. Called at the
    start of a task; no effect where pyarrow lacks jemalloc or the environment names Arrow's allocator.

    Arrow's default, mimalloc, keeps 10 to 25 MiB more per worker and needs as much CPU.
    """
    if _is_worker() and _ALLOCATOR not in os.environ:
        import pyarrow as pa

        if _JEMALLOC in pa.supported_memory_backends():
            pa.set_memory_pool(pa.jemalloc_memory_pool())


def _is_worker() -> bool:
    program = getattr(sys.modules["__main__"], "__spec__", None)
    return program is not None and program.name == _DAEMON


def acknowledge_at_once() -> None:
    """Avoids a wait of 40 ms for the first row of a task. Called at the task's start.

    The JVM sends a task in several small writes and holds each back until the previous one is acknowledged (Nagle); the
    worker's kernel delays that acknowledgement (RFC 1122, 4.2.3.2). PySpark does not say which socket is the worker's,
    so all sockets get the option, which does no harm to others. Skipped under a default timeout, which would make the
    worker's socket non-blocking.
    """
    if _QUICKACK is None or socket.getdefaulttimeout() is not None:
        return
    with suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with suppress(OSError):  # the listing's descriptor, closed by now, or a socket that is not TCP
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as sock:
                        sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
