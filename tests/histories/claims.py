"""What an error, or a line of the log, says about the decision of a write: a table of exact phrases.

A text that the table does not have says that nothing is decided. So an error must say in the sink's documented words
that the write is decided, or that this is unknown, and an error of Spark must come from a process that knew.
"""

from __future__ import annotations

from dataclasses import dataclass

NONE, DECIDED, UNKNOWN = "none", "decided", "unknown"


@dataclass(frozen=True)
class Saying:
    """A text says ``claim`` if it has all ``phrases``. ``reason``: why it is to be believed."""

    claim: str
    phrases: tuple[str, ...]
    reason: str
    begins: bool = False
    """The text begins with the phrase. Elsewhere it would be of a connection to a broker."""

    def is_in(self, text: str) -> bool:
        return text.startswith(self.phrases) if self.begins else all(phrase in text for phrase in self.phrases)


OF_SINK = (
    Saying(UNKNOWN, ("may or may not be decided, because no broker confirms it",), "the intent has no outcome"),
    Saying(DECIDED, ("transactions could not be committed yet: ",), "a decided transaction's EndTxn has no outcome"),
    Saying(DECIDED, ("is decided, but the ledger does not say whether the rows of task ",), "a marker is missing"),
    Saying(DECIDED, ("is decided, but the transactions of task ",), "transactions timed out between the EndTxns"),
    Saying(
        DECIDED,
        ("was committed before, but no broker says whether its topics are still those that it was",),
        "a replay of a committed write could not look for its topics",
    ),
    Saying(
        DECIDED,
        ("was committed into topic ", "which was deleted and created again since"),
        "a replay of a committed write is refused",
    ),
    Saying(
        DECIDED,
        ("was committed before, and its replay cannot be encoded with the schemas that it was written ",),
        "a replay of a committed write is refused",
    ),
    Saying(
        DECIDED,
        ("The other tasks' rows are committed; rewrite the missing ones by hand, then accept the loss with ",),
        "a replay with other rows cannot repair a decided batch",
    ),
    Saying(DECIDED, ("write aborted, but ", "had been decided and is committed"), "abort has finished the batch"),
    Saying(DECIDED, ("write aborted, but ", "was committed before"), "abort has found it finished"),
    Saying(DECIDED, ("write aborted, but ", "was committed by another run"), "abort has found it finished"),
    Saying(DECIDED, ("write aborted, but ", "is decided and the rows of task "), "abort has found some of it lost"),
)
"""The sink's own words. A test looks for them in its source."""

_LOST_JVM = "the driver's Python has lost its JVM, on whose side the commit goes on or dies"
OF_SPARK = (
    Saying(
        UNKNOWN,
        ("Python worker exited unexpectedly (crashed)", "commitWriteInPython"),
        "the process that commits has died. That of planning (createWriteInfoInPython) or of a task decides nothing.",
    ),
    Saying(UNKNOWN, ("Answer from Java side is empty",), _LOST_JVM),
    Saying(UNKNOWN, ("Error while sending or receiving",), _LOST_JVM),
    Saying(UNKNOWN, ("An error occurred while trying to connect to the Java server",), _LOST_JVM),
    Saying(UNKNOWN, ("[Errno 111] Connection refused",), _LOST_JVM, begins=True),
    Saying(UNKNOWN, ("[Errno 104] Connection reset by peer",), _LOST_JVM, begins=True),
)
"""What Spark and Py4J say of a process that died with what it knew."""


def claim_of(text: str) -> str:
    """``NONE``, ``DECIDED`` or ``UNKNOWN``. An error that does not know it counts as unknown even if a line of abort
    that was added to it does, because it is the error that the job got."""
    found = {each.claim for each in (*OF_SINK, *OF_SPARK) if each.is_in(text)}
    return next((claim for claim in (UNKNOWN, DECIDED) if claim in found), NONE)
