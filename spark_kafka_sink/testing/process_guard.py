"""Runs one command, and ends it when the parent process is gone, however the parent died.

Run as a script by ``child_processes``: ``process_guard.py PARENT_PID SCRATCH_FOLDER COMMAND...`` (an empty
SCRATCH_FOLDER for none). Prints the command's process id, then watches both. When the parent dies, even by kill -9, it
kills the command's process group and removes the scratch folder. The guard is a process of its own because
PR_SET_PDEATHSIG fires when the *thread* that started the child ends, and exists on Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time

POLL_S = 0.1
PR_SET_PDEATHSIG = 1

# Loaded before the fork: between fork and exec nothing may be imported.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _die_with_guard() -> None:
    """Runs in the child before exec. The guard has one thread, so the signal comes only when the guard dies."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _leave(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def main(argv: list[str]) -> int:
    parent, scratch, command = int(argv[1]), argv[2], argv[3:]
    signal.signal(signal.SIGTERM, _leave)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # the log: standard output belongs to the one line for the parent
        process_group=0,
        preexec_fn=_die_with_guard,  # noqa: PLW1509 - this process has one thread
    )
    try:
        sys.stdout.write(f"{child.pid}\n")
        sys.stdout.flush()
        while child.poll() is None and os.getppid() == parent:
            time.sleep(POLL_S)
    finally:
        # The group outlives its leader when the command left children of its own behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        returncode = child.wait()
        if scratch and os.getppid() != parent:
            shutil.rmtree(scratch, ignore_errors=True)
    return returncode if returncode >= 0 else 128 - returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv))
