"""What the processes that tests start have in common."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_HERE: Final = Path(__file__).parent
PYTHON_PATH: Final = os.pathsep.join((str(_HERE / "without_hypothesis"), str(_HERE.parents[1])))
"""Their PYTHONPATH: this repository, without Hypothesis."""


def finished(command: Sequence[object], timeout_s: float, **how: Any) -> tuple[int, str]:
    """Exit code of a command, and what it wrote to both of its streams. ``how``: as of ``subprocess.run``."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([*map(str, command)], text=True, timeout=timeout_s, check=False, **streams, **how)
    return done.returncode, done.stdout
