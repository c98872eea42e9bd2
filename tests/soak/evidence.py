"""What a history must have before it can prove anything: a history in which nothing happened breaks no promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from tests.soak.events import COMMITTED, UNCOMMITTED, Event, rows_seen, workload_of, write_of

_NEEDED = {
    "intent": "it has no intent",
    "verdict": "it has no verdict",
    "handed": "no task was handed a row",
    "reported": "no task has reported",
    "end": "no transaction has an end",
}


def lacking(events: Sequence[Event]) -> str:
    """Why the history has no verdict: its run ended before its time, or it lacks something without which it proves
    nothing. "" if it has all of it."""
    troubles = [event["trouble"] for event in events if event["kind"] == "ended" and event["trouble"]]
    said = [f"the run ended before its time: {trouble}" for trouble in troubles]
    if found := list(_lacking(events)):
        said.append(f"this history proves nothing, because {', and '.join(found)}")
    return "; ".join(said)


def _lacking(events: Sequence[Event]) -> Iterator[str]:
    kinds = {event["kind"] for event in events}
    yield from (text for kind, text in _NEEDED.items() if kind not in kinds)
    if not any(event["kind"] == "fault" and event["phase"] == "ends" for event in events):
        yield "no fault has struck"
    seen = {workload_of(write_of(row)) for row in rows_seen(events, COMMITTED)}
    if not seen:
        yield "no read_committed reader has seen a row"
    if not rows_seen(events, UNCOMMITTED):
        yield "no read_uncommitted reader has seen a row"
    if not seen:
        return
    if not any(event["kind"] == "passed" and event["isolation"] == COMMITTED and event["offset"] for event in events):
        yield "no read_committed reader has passed a row, so that none may be called missing"
    elif not _is_read_at_last(events):
        yield "no read_committed reader has begun after the last verdict"
    unseen = sorted({event["name"] for event in events if event["kind"] == "workload"} - seen)
    if unseen:
        yield f"no reader has seen a row of {', '.join(unseen)}"


def _is_read_at_last(events: Sequence[Event]) -> bool:
    """Whether a read_committed reader began after the last verdict, and so has read what became of all writes. What a
    query has noted in its checkpoint, which has no ``start``, is recorded later than it happens."""
    began: dict[str, float] = {}
    for event in events:
        if event["kind"] in ("seen", "passed") and event["isolation"] == COMMITTED:
            began[event["reader"]] = min(event["at"], began.get(event["reader"], inf))
    last = max((event["at"] for event in events if event["kind"] == "verdict" and event.get("start")), default=-inf)
    return any(at > last for at in began.values())
