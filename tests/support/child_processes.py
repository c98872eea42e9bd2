"""What the processes that tests start have in common."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.waiting import DEADLINE_S

_HERE: Final = Path(__file__).parent
PYTHON_PATH: Final = os.pathsep.join((str(_HERE / "without_hypothesis"), str(_HERE.parents[1])))
"""Their PYTHONPATH: this repository, without Hypothesis."""


def finished(command: Sequence[object], timeout_s: float, **how: Any) -> tuple[int, str]:
    """Exit code of a command, and what it wrote to both of its streams. ``how``: as of ``subprocess.run``."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([*map(str, command)], text=True, timeout=timeout_s, check=False, **streams, **how)
    return done.returncode, done.stdout


def failure_in_fork(check: Callable[[], object]) -> str:
    """What goes wrong in ``check`` in a forked child, "" if nothing does."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        said = ""
        try:
            signal.alarm(int(DEADLINE_S) // 2)
            check()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode()[:4_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return said if status == 0 else f"ended by signal {-status}: it hangs"
