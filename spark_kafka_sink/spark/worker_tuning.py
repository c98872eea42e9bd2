"""What a Python worker of Spark does around a task: freezes its heap, and acknowledges its socket's data at once.

The reasons and figures are in ARCHITECTURE, "Non-obvious".
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from contextlib import suppress
from typing import Final

_DAEMON: Final = "pyspark.daemon"
"""The program of a worker, which collects garbage after each task. The heap of any other program is not ours."""

_OPEN_FILES: Final = "/proc/self/fd"
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Linux, tcp(7): acknowledge what is pending, and what arrives until the process responds."""

_frozen = False  # gc.get_freeze_count() would count all frozen objects, after each task


def freeze_imports() -> None:
    """Let garbage collections skip the objects that exist at the end of the worker's first work.

    These are still freed by reference count; only cycles among them stay.
    """
    global _frozen
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is not None and program.name == _DAEMON and not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def acknowledge_at_once() -> None:
    """Avoid a wait of 40 ms for the first row of a task. Called at its start.

    The JVM sends a task in several small writes and holds each back until the previous one is acknowledged (Nagle);
    the worker's kernel delays that acknowledgement (RFC 1122, 4.2.3.2). PySpark does not tell which socket is the
    worker's, so all get the option: it does no harm to others. Skipped under a default timeout, which would make the
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
