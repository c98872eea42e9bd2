"""Named steps of the protocol, at which tests stop, fail or kill a process. Here they do nothing."""

from __future__ import annotations


def hit(step: str, task: int | None = None) -> None:
    """Called when a process has reached ``step``. Tests replace this function, so call it as ``failpoints.hit``."""
