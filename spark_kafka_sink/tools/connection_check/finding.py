"""``Finding``: one line of a connection check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """How a step ended."""

    OK = "ok"
    FAILED = "FAILED"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was tested and how it ended; no secrets. A value: processes may exchange and compare findings.

    ``subject``: a broker's address, a topic, … ``elapsed_ms``: None for a step that took no request of its own.
    """

    subject: str
    step: str
    outcome: Outcome
    text: str
    elapsed_ms: float | None = None
