"""Keeps a task from waiting 40 ms for its first row.

Spark's JVM sends a task to its Python worker in several writes, and its socket holds a small one back until those
before it are acknowledged (Nagle's algorithm). The worker's kernel, which has seen this socket ask and answer, delays
that acknowledgement in the hope of an answer to send it with (RFC 1122, 4.2.3.2): 40 ms on Linux, in every task.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from typing import Final

_OPEN_FILES: Final = "/proc/self/fd"
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""Of Linux, tcp(7): what waits to be acknowledged is, and what comes is until the process answers."""


def acknowledge_at_once() -> None:
    """At the start of a task. PySpark does not say which socket is the worker's: to the others it does no harm.

    Not where a default timeout is set: a socket object that is made under one turns its socket non-blocking, which the
    worker's must not be.
    """
    if _QUICKACK is None or socket.getdefaulttimeout() is not None:
        return
    with suppress(OSError):
        for name in os.listdir(_OPEN_FILES):
            with suppress(OSError):  # the listing's own descriptor, closed by now; a socket that is not TCP
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as sock:
                        sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
