"""What a run shows while it works: a line for each finished step, and on a terminal a spinner for the running one."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING

from spark_kafka_sink.tools.connection_check.lines import Printer

if TYPE_CHECKING:
    from rich.status import Status

    from spark_kafka_sink.tools.connection_check.findings import Finding


class Screen(Printer):
    """Writes to standard output."""

    def __init__(self) -> None:
        super().__init__()
        self._status = _spinner()

    @property
    def is_live(self) -> bool:
        """Whether a running step is shown."""
        return self._status is not None

    def running(self, text: str) -> None:
        if self._status is not None:
            self._status.update(text)
            self._status.start()

    def finding(self, finding: Finding) -> None:
        self.close()
        super().finding(finding)

    def close(self) -> None:
        """Removes the spinner."""
        if self._status is not None:
            self._status.stop()


def _spinner() -> Status | None:
    """None without rich, and where standard output is no terminal, as in a notebook."""
    if not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        return None
    from rich.console import Console

    return Console(highlight=False).status("")
