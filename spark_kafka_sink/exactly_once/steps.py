"""Named steps of the protocol, at which tests stop, fail or kill a process. Here they do nothing."""

from __future__ import annotations


def reach(step: str, task: int | None = None) -> None:
    """A process has reached ``step``. Tests replace this function; call it as ``steps.reach``."""
