"""Files that hold a token, an assertion, its template or its private key."""

from __future__ import annotations

import os
from stat import S_ISREG
from typing import Final

from spark_kafka_sink.common.config.operator_limits import file_fault
from spark_kafka_sink.errors import LoginError

_MOST_BYTES: Final = 1_000_000


def read_text(name: str, path: str) -> str:
    """A file's text in UTF-8, trimmed. ``name`` begins the errors: option and file. Raises as ``read_bytes``."""
    try:
        text = read_bytes(name, path).decode().strip()
    except UnicodeDecodeError:
        raise LoginError(f"{name} cannot be read: it is not UTF-8") from None
    if not text:
        raise LoginError(f"{name} is empty")
    return text


def read_bytes(name: str, path: str) -> bytes:
    """A file's content. Raises ``LoginError``, also for a file that is not regular, that has more than 1 MB, or that
    the operator's limits do not allow.

    A pipe would block the login, and a device may have no end.
    """
    if (fault := file_fault(path)) is not None:
        raise LoginError(f"{name} {fault}")
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not S_ISREG(os.fstat(file.fileno()).st_mode):
                raise LoginError(f"{name} is not a regular file")
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its path has a NUL character"
        raise LoginError(f"{name} cannot be read: {reason}") from None
    if len(content) > _MOST_BYTES:
        raise LoginError(f"{name} has more than {_MOST_BYTES} bytes")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Opening a pipe without a writer would wait for one."""
    return os.open(path, flags | os.O_NONBLOCK)
