"""Arms the steps of ``kill_points`` for processes that inherit the environment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import eventually

_RELEASE_S = 2.0


class Fault:
    """At most one is armed; it happens once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._tripped = file.with_suffix(".tripped")
        self._hold = file.with_suffix(".hold")

    def arm(self, point: str, action: str = "kill", task: int | None = None, after: str | None = None) -> None:
        """``after``: the step at which a process is made to fail first; ``point`` is armed from then on."""
        self._tripped.unlink(missing_ok=True)
        if action == "hold":
            self._hold.unlink(missing_ok=True)
            os.mkfifo(self._hold)
        where = point if task is None else f"{point}@{task}"
        draft = self.file.with_suffix(".draft")
        first = "" if after is None else f"{after}=fail\n"
        draft.write_text(f"{first}{where}={action}")
        draft.rename(self.file)

    def disarm(self) -> None:
        self.file.unlink(missing_ok=True)

    @property
    def happened(self) -> bool:
        return self._tripped.exists()

    def wait(self, role=None) -> int:
        """Until a process has reached the point; its id. ``role``: the one that should; what it raises before, this
        raises."""

        def reached() -> bool:
            if not self.happened and role is not None and role.answer.poll():
                raise AssertionError(f"it ended before, with {role.result()}")
            return self.happened

        eventually(reached, "no process reached the point")
        return int(self._tripped.read_text())

    def wake(self) -> None:
        """Let a stopped process go on: a zombie now."""
        os.kill(self.wait(), signal.SIGCONT)

    def release(self) -> bool:
        """Let a held process go on; False when it is gone."""
        deadline = time.monotonic() + _RELEASE_S
        while time.monotonic() < deadline:
            with suppress(OSError):  # nobody reads, not yet or not any more
                os.close(os.open(self._hold, os.O_WRONLY | os.O_NONBLOCK))
                return True
            time.sleep(0.01)
        return False
