"""Ends the processes of a query when the process that runs the test is gone, however it died.

Run as ``python -m tests.soak.guard MARK``: it waits until its standard input is closed, which the death of
its parent does too, and then ends every process with the mark.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.soak.processes import end_all
from tests.support.waiting import DEADLINE_S

_REPOSITORY = Path(__file__).parents[2]


class Guard:
    """Ends the processes with this mark when it is closed, or when the process that has made it dies."""

    def __init__(self, mark: str) -> None:
        command = [sys.executable, "-m", __spec__.name, mark]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=_REPOSITORY, start_new_session=True)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(2 * DEADLINE_S) == 0, "processes are left over; the lines above have their ids"


if __name__ == "__main__":
    sys.stdin.read()
    end_all(sys.argv[1])
