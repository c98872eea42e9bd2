"""Files that hold a token, an assertion or its template."""

from __future__ import annotations

import os
from stat import S_ISREG
from typing import Final

from spark_kafka_sink.errors import LoginError

_MOST_BYTES: Final = 1_000_000


def read_text(name: str, path: str) -> str:
    """A file's text, trimmed. Raises ``LoginError``, also for a file that is not regular or has more than 1 MB.

    A pipe would block the login, and a device may have no end.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LoginError(f"{name} is not a regular file")
            content = file.read(_MOST_BYTES + 1)
        text = content.decode().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LoginError(f"{name} cannot be read: {reason}") from None
    if len(content) > _MOST_BYTES:
        raise LoginError(f"{name} has more than {_MOST_BYTES} bytes")
    if not text:
        raise LoginError(f"{name} is empty")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe without a writer would wait for one."""
    return os.open(path, flags | os.O_NONBLOCK)
