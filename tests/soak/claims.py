"""What an error, or a line of the log, says about the decision of a write: a table of exact phrases.

A text that the table does not have says that nothing is decided. So an error must say in the sink's documented words
that this write, and not another one, is decided, or that this is unknown. An error of Spark must come from a process
that knew. If a text says that no row is visible or becomes visible, nothing else in it counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

NONE, DECIDED, UNKNOWN, DENIED = "none", "decided", "unknown", "denied"


@dataclass(frozen=True)
class Saying:
    """A text says ``claim`` if it has all ``phrases``. Those of the sink name the write before the first phrase.
    ``reason``: why it is to be believed."""

    claim: str
    phrases: tuple[str, ...]
    reason: str
    begins: bool = False
    """The text begins with the phrase. Elsewhere it would be of a connection to a broker."""

    def is_in(self, text: str) -> bool:
        return text.startswith(self.phrases) if self.begins else all(phrase in text for phrase in self.phrases)

    def is_of(self, entry: str, text: str) -> bool:
        """Whether the text says it of this entry of the ledger."""
        query, number = entry.rsplit("/", 1)
        number_of = f"[Bb]atch {number} of|batch {number} of query|txnVersion {number} of txnAppId|batch job"
        named = rf"\b({number_of}) {re.escape(query)}( \([^)]*\))? {re.escape(self.phrases[0])}"
        return re.search(named, text) is not None


OF_SINK = (
    Saying(UNKNOWN, ("may or may not be decided, because no broker confirms it",), "the intent has no outcome"),
    Saying(DECIDED, ("is decided, but ", "transactions could not be committed yet: "), "an EndTxn has no outcome"),
    Saying(DECIDED, ("is decided, but the ledger does not say whether the rows of task ",), "a marker is missing"),
    Saying(
        DECIDED,
        ("is decided, but ledgerTopic ", "was deleted and created again after its tasks had written to it"),
        "the markers are gone with the ledger",
    ),
    Saying(UNKNOWN, ("was overtaken: another driver is at batch ",), "the other driver knows what became of it"),
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
        (
            "lost the rows of task ",
            "The other tasks' rows are committed; rewrite the missing ones by hand, then accept the loss with ",
        ),
        "a replay with other rows cannot repair a decided batch",
    ),
    Saying(DECIDED, ("had been decided and is committed", "write aborted, but "), "abort has finished the batch"),
    Saying(DECIDED, ("was committed before", "write aborted, but "), "abort has found it finished"),
    Saying(DECIDED, ("was committed by another run", "write aborted, but "), "abort has found it finished"),
    Saying(DECIDED, ("is decided and the rows of task ", "write aborted, but "), "abort has found some of it lost"),
)
"""The sink's own words, each after the name of the write. A test looks for them in its source."""

DENIALS = (
    Saying(DENIED, (": it writes the batch again.",), "both, of a query"),
    Saying(DENIED, ("): it writes the rows again.",), "both, of a write with a version"),
    Saying(DENIED, ("write aborted; none of its rows is visible: ",), "abort has found nothing decided"),
)
"""The sink's own words for a promise that nothing of this run becomes visible."""

OF_LEDGER = (
    Saying(
        UNKNOWN,
        ("was deleted and made again while it was read: it cannot say what was decided",),
        "the markers are gone with the ledger",
    ),
    Saying(UNKNOWN, ("does not exist any more. Start the write again: ",), "the ledger is gone"),
)
"""The sink's own words as well, but without the name of a write."""

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


def claim_of(text: str, entries: Collection[str] | None = None) -> str:
    """What it says about the write that has one of these entries in the ledger, and without them about any write.

    ``DENIED`` if it says that none of the run's rows becomes visible, ``UNKNOWN``, ``DECIDED`` or ``NONE``. An error
    that does not know the decision counts as unknown even if a line of abort that was added to it does, because it is
    the error that the job got.
    """
    if any(each.is_in(text) for each in DENIALS):
        return DENIED
    said = [each for each in (*OF_SINK, *OF_LEDGER, *OF_SPARK) if each.is_in(text)]
    if entries is not None:
        said = [each for each in said if each not in OF_SINK or any(each.is_of(entry, text) for entry in entries)]
    found = {each.claim for each in said}
    return next((claim for claim in (UNKNOWN, DECIDED) if claim in found), NONE)
