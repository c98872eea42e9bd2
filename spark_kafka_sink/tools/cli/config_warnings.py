"""Warnings about options, as a command shows them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from spark_kafka_sink.common.config import ConfigWarning


@contextmanager
def plain_config_warnings() -> Iterator[None]:
    """Prints a ``ConfigWarning`` as ``warning: <text>`` to stderr, without Python's file and source line."""
    shown_by_python = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, ConfigWarning):
            print(f"warning: {message}", file=file or sys.stderr)
        else:
            shown_by_python(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown_by_python
