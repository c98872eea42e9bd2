"""Errors of the exactly-once protocol, and what to do about a write that failed.

``ADVICE`` is a table by the kind of write, and how far it came; docs/exactly-once-operations.md has the same
table.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.exactly_once.values import Entry, WriteKind


class ExactlyOnceError(KafkaError):
    """Continuing would break the exactly-once guarantee. The message names the write, the batch and what to do."""


class PlanningError(ExactlyOnceError, pickle.PickleError):
    """Exactly-once write under the name … cannot start. A ``PickleError``, because Spark passes these on unchanged."""


class ReplayMismatchError(ExactlyOnceError):
    """The replay of a batch has other rows, or another number of tasks, than the decided batch."""


class LostRowsError(ExactlyOnceError):
    """Rows of a decided batch are lost, because their transactions were aborted."""


class NotDecidedError(ExactlyOnceError):
    """A batch was not decided and will not be: the EndTxn of its intent was not sent, or the first one was refused."""


class FencedRunError(NotDecidedError):
    """Another driver has fenced this run, which decides nothing. That driver may have committed the same write."""


class Progress(Enum):
    """How far a write came that failed."""

    NOT_DECIDED = "not decided: none of its rows is visible"
    UNKNOWN = "no broker confirms the decision"
    DECIDED = "decided, and not all of its rows are visible yet"
    LOST = "decided, and the rows of some tasks are lost"
    ALL_LOST = "decided, and all of its rows are lost"

    @classmethod
    def of_lost(cls, entry: Entry, lost: Collection[int]) -> Progress:
        """The progress of a decided batch. ``lost``: its tasks whose rows are lost."""
        return cls.LOST if entry.has_rows_besides(lost) else cls.ALL_LOST


_AGAIN: Final = {
    WriteKind.MICRO_BATCH: "Start the query again with its checkpoint",
    WriteKind.VERSION: "Run the job again with the same txnAppId and txnVersion (in foreachBatch, start the query "
    "again with its checkpoint)",
}
_NEXT_RUN: Final = {
    Progress.NOT_DECIDED: ": it writes the batch again.",
    Progress.UNKNOWN: ": it reads whether the batch is decided, and commits it or writes it again.",
    Progress.DECIDED: ": it commits what is open. It writes again only rows whose transactions the brokers have ended "
    "before, after {timeout}.",
    Progress.LOST: ": it writes the missing rows again, and only those.",
    Progress.ALL_LOST: ": it writes the batch again.",
}
ADVICE: Final[Mapping[tuple[WriteKind, Progress], str]] = MappingProxyType({
    (kind, progress): f"{again}{does}" for kind, again in _AGAIN.items() for progress, does in _NEXT_RUN.items()
})  # fmt: skip
