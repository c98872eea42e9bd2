"""What a checker says: what is wrong with a history, and where it has looked away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

_SHOWN = 5


class Kind(Enum):
    """What can be wrong with a history."""

    LOST = "rows lost"
    DOUBLED = "row doubled"
    ABORTED_READ = "aborted row read"
    PARTLY_VISIBLE = "batch visible in part"
    OUT_OF_ORDER = "rows out of order"
    FAILED_BUT_VISIBLE = "told failed, but visible"
    COMMITTED_BUT_INVISIBLE = "told committed, but not visible"
    RECEIPT_CONTRADICTED = "receipt contradicted"
    MISPLACED = "row in another topic"
    FOREIGN_ROW = "row from nowhere"


@dataclass(frozen=True, order=True)
class Finding:
    """``about``: a write, a row or a partition."""

    kind: Kind
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.about}: {self.text}"


class Reason(Enum):
    """Why a checker has looked away, and what is counted."""

    TOLD_DECIDED = "failed runs whose rows are visible: their error says that the write is decided"
    TOLD_UNKNOWN = "failed runs whose rows are visible: their error says that the decision is unknown"
    LOGGED_DECIDED = "failed runs whose rows are visible: the abort has logged that the write is decided"
    OTHER_RUN = "failed runs of a write that is visible: all of its visible rows were written by other runs"
    TORN_AND_REPAIRED = "batches visible in part: a later run has written the missing rows again"
    TORN_AND_TOLD = "batches visible in part: the error says that the write is decided, or that this is unknown"
    AT_LEAST_ONCE = "rows that are visible twice, of at-least-once writes"
    NO_RECEIPTS = "rows whose place was not compared with a receipt: dead letters have none"
    NO_AUTHOR = "at-least-once rows whose order was not compared: nobody knows which attempt wrote them"
    SEVERAL_ATTEMPTS = "receipts whose count was not compared: rows of another attempt lie in between"
    NOT_READ = "receipts and batches that no reader has read to their ends"
    NAMELESS = "intents, verdicts and lines of abort whose write is not known, because no task has reported"


@dataclass(frozen=True)
class Excuse:
    """An exception that made a rule keep silent. ``count``: how many of what the reason counts."""

    reason: Reason
    about: str
    count: int = 1


@dataclass(frozen=True)
class Checked:
    """What the rules say of a history."""

    findings: list[Finding]
    excuses: list[Excuse]

    @property
    def counts(self) -> dict[Reason, int]:
        """How often each exception was made, in the order of ``Reason``."""
        found: Counter[Reason] = Counter()
        for excuse in self.excuses:
            found[excuse.reason] += excuse.count
        return {reason: found[reason] for reason in Reason if found[reason]}

    def excused(self) -> list[str]:
        """A line for each reason."""
        lines = []
        for reason, count in self.counts.items():
            about = dict.fromkeys(excuse.about for excuse in self.excuses if excuse.reason is reason)
            lines.append(f"{count:6} {reason.value} ({listed(list(about))})")
        return lines


def listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
