"""What a history must have before it can prove anything: a history in which nothing happened breaks no promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.histories.events import Event, workload_of, write_of
from tests.histories.index import COMMITTED


def lacking(events: Sequence[Event]) -> str:
    """One sentence that names everything without which the history proves nothing, "" if it has all of it."""
    found = list(_lacking(events))
    return f"this history proves nothing, because {', and '.join(found)}" if found else ""


def _lacking(events: Sequence[Event]) -> Iterator[str]:
    if not any(event.kind == "intent" for event in events):
        yield "it has no intent"
    if not any(event.kind == "verdict" for event in events):
        yield "it has no verdict"
    if not any(event.kind == "fault" and event["phase"] == "ends" for event in events):
        yield "no fault has struck"
    rows = (
        row for event in events if event.kind == "seen" and event["isolation"] == COMMITTED for row in event["rows"]
    )
    seen = {workload_of(write_of(row)) for _, row in rows}
    if not seen:
        yield "no read_committed reader has seen a row"
        return
    if not any(event.kind == "passed" and event["isolation"] == COMMITTED and event["offset"] for event in events):
        yield "no read_committed reader has passed a row, so that none may be called missing"
    unseen = sorted({event["name"] for event in events if event.kind == "workload"} - seen)
    if unseen:
        yield f"no reader has seen a row of {', '.join(unseen)}"
