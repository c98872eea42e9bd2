"""What became of a decided batch's transactions that are not open any more: their markers in the ledger tell."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger import Ledger
from spark_kafka_sink.exactly_once.ledger_view import LedgerView
from spark_kafka_sink.exactly_once.values import Entry, EntryState
from spark_kafka_sink.transactions.values import PreparedTransaction


def lost_tasks(
    ledger: Ledger, entry: Entry, gone: Mapping[int, PreparedTransaction], deadline: float
) -> frozenset[int]:
    """``gone``: task → its transaction, which a coordinator does not have any more. Which of these tasks' rows are gone
    too; none, when another process has carried the entry out meanwhile."""

    def unsettled(view: LedgerView) -> bool:
        if not _stands(view, entry):
            return True
        return entry.marker_partition is None and any(map(view.undecided, gone.values()))

    view = ledger.await_decided(unsettled, deadline)
    found = view.entries.get(entry.query)
    if found is None or found.state is EntryState.DONE:
        return frozenset()
    if entry.marker_partition is None:
        return frozenset(task for task in gone if not view.committed(entry.query, entry.number, task))
    markers = {task: (entry.tasks[task].marker or 0, prepared) for task, prepared in gone.items()}
    return frozenset(gone) - ledger.committed_markers(entry.marker_partition, markers, deadline)


def _stands(view: LedgerView, entry: Entry) -> bool:
    """Whether the ledger that is asked for markers is the one with the intent: in another, none means nothing."""
    found = view.entries.get(entry.query)
    if found is not None and found.number > entry.number:
        raise ExactlyOnceError(
            f"Batch {entry.number} of {entry.query} (name {view.name}) was taken over: another driver is at batch "
            f"{found.number}. End the run that is not wanted."
        )
    if found is None:
        return entry.query in view.removed
    return found.number == entry.number
