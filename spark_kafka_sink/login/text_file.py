"""Files that hold a token, an assertion or its template."""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.errors import LoginError


def read_text(name: str, path: str) -> str:
    """A file's text, trimmed. Raises ``LoginError``."""
    try:
        text = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise LoginError(f"{name} cannot be read: {reason}") from None
    if not text:
        raise LoginError(f"{name} is empty")
    return text
