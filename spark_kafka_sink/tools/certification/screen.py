"""Shows the progress of a run: a line for each finished step, and on a terminal a spinner for the current one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_kafka_sink.tools.connection_check.lines import Printer

if TYPE_CHECKING:
    from rich.status import Status

    from spark_kafka_sink.tools.connection_check.findings import Finding


class Screen(Printer):
    """Writes to standard output. Until ``outlive_terminal``, raises ``OSError`` if standard output was closed."""

    def __init__(self) -> None:
        super().__init__()
        self._status = _spinner()
        self._may_be_lost = False

    @property
    def is_live(self) -> bool:
        """Whether the current step is shown."""
        return self._status is not None

    def outlive_terminal(self) -> None:
        """Makes later calls ignore errors of standard output, because its terminal may have been closed, or the program
        that reads it from a pipe may have ended.
        """
        self._may_be_lost = True

    def running(self, text: str) -> None:
        """Shows what the current step does."""
        with self._written():
            if self._status is not None:
                self._status.update(text)
                self._status.start()

    def finding(self, finding: Finding) -> None:
        """Shows how a step ended."""
        self.close()
        with self._written():
            super().finding(finding)

    def line(self, text: str) -> None:
        """Shows a text of its own."""
        self.close()
        with self._written():
            print(text, flush=True)

    def close(self) -> None:
        """Removes the spinner."""
        with self._written():
            if self._status is not None:
                self._status.stop()

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            if not self._may_be_lost:
                raise
            self._status = None


def _spinner() -> Status | None:
    """The spinner, or None if ``rich`` is not installed or standard output is not a terminal, as in a notebook."""
    if not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        return None
    from rich.console import Console

    return Console(highlight=False).status("")
