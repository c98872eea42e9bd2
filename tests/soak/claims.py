"""What an error, or a line of the log, says about the decision of a write: a table of exact phrases.

A text that the table does not have says that nothing is decided. So an error must say in the sink's documented words
that this write, and not another one, is decided, or that this is unknown. An error of Spark must come from a process
that knew. If a text says that no row is visible or becomes visible, nothing else in it counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection

NONE, DECIDED, UNKNOWN, DENIED = "none", "decided", "unknown", "denied"


Phrases = tuple[str, ...]
"""A text says it if it has all of them."""

OF_SINK: dict[Phrases, str] = {
    ("may or may not be decided, because no broker confirms it",): UNKNOWN,
    ("was overtaken: another driver is at batch ",): UNKNOWN,
    ("is decided, but ", "transactions could not be committed yet: "): DECIDED,
    ("is decided, but the ledger does not say whether the rows of task ",): DECIDED,
    ("is decided, but ledgerTopic ", "was deleted and created again after its tasks had written to it"): DECIDED,
    # Its transactions timed out between the EndTxns.
    ("is decided, but the transactions of task ",): DECIDED,
    # A replay of a committed write is refused, or can't repair a decided one.
    ("was committed before, but no broker says whether the topics that it was written to",): DECIDED,
    ("was committed into topic ", "which was deleted and created again since"): DECIDED,
    ("was committed before, and its replay cannot be encoded with the schemas that it was written ",): DECIDED,
    (
        "lost the rows of task ",
        "The other tasks' rows are committed: write the missing rows yourself, then accept the loss with ",
    ): DECIDED,
    # What abort has found, or done.
    ("had been decided and is committed", "The write was aborted, but "): DECIDED,
    ("was committed before", "The write was aborted, but "): DECIDED,
    ("was committed by another run", "The write was aborted, but "): DECIDED,
    ("is decided and the rows of task ", "The write was aborted, but "): DECIDED,
}
"""The sink's own words, of which the first ones follow the name of the write. A test looks for all in its source."""

OF_LEDGER: dict[Phrases, str] = {
    ("was deleted and made again while it was read: it cannot say what was decided",): UNKNOWN,
    ("does not exist any more. Start the write again: ",): UNKNOWN,
}
"""The sink's own words as well, but without the name of a write."""

DENIALS: tuple[Phrases, ...] = (
    (": it writes the batch again.",),
    ("The write was aborted, and none of its rows is visible: ",),
)
"""The sink's own words for a promise that nothing of this run becomes visible."""

OF_SPARK: dict[Phrases, str] = {
    # The process that commits has died. That of planning (createWriteInfoInPython) or of a task decides nothing.
    ("Python worker exited unexpectedly (crashed)", "commitWriteInPython"): UNKNOWN,
    # The driver's Python has lost its JVM, on whose side the commit goes on or dies.
    ("Answer from Java side is empty",): UNKNOWN,
    ("Error while sending or receiving",): UNKNOWN,
    ("An error occurred while trying to connect to the Java server",): UNKNOWN,
}
"""What Spark and Py4J say of a process that died with what it knew."""

_LOST_JVM = ("[Errno 111] Connection refused", "[Errno 104] Connection reset by peer")
"""As well, if a text begins with it. Elsewhere it would be of a connection to a broker."""


def claim_of(text: str, entries: Collection[str] | None = None) -> str:
    """What it says about the write that has one of these entries in the ledger, and without them about any write.

    ``DENIED`` if it says that none of the run's rows becomes visible, ``UNKNOWN``, ``DECIDED`` or ``NONE``. An error
    that does not know the decision counts as unknown even if a line of abort that was added to it does, because it is
    the error that the job got.
    """
    if any(_says(text, phrases) for phrases in DENIALS):
        return DENIED
    found = {claim for phrases, claim in {**OF_LEDGER, **OF_SPARK}.items() if _says(text, phrases)}
    found |= {claim for phrases, claim in OF_SINK.items() if _says(text, phrases) and _is_of(entries, phrases[0], text)}
    if text.startswith(_LOST_JVM):
        found.add(UNKNOWN)
    return next((claim for claim in (UNKNOWN, DECIDED) if claim in found), NONE)


def _says(text: str, phrases: Phrases) -> bool:
    return all(phrase in text for phrase in phrases)


def _is_of(entries: Collection[str] | None, phrase: str, text: str) -> bool:
    """Whether the phrase follows the name of a write that has one of these entries in the ledger."""
    for query, number in (entry.rsplit("/", 1) for entry in entries or ()):
        number_of = f"[Bb]atch {number} of|batch {number} of query|txnVersion {number} of txnAppId|batch job"
        if re.search(rf"\b({number_of}) {re.escape(query)}( \([^)]*\))? {re.escape(phrase)}", text):
            return True
    return entries is None
