"""The rules of the checker about what lies where: orders, receipts, and rows that belong elsewhere or nowhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.soak.events import COMMITTED, UNCOMMITTED, workload_of, write_of
from tests.soak.findings import Excuse, Finding, Kind, Reason, listed
from tests.soak.history import Attempt, History, Partition, Place, Report, Spot, View


def rows_between(view: View, report: Report, place: Place) -> list[tuple[int, str]]:
    """The rows, with their offsets, that the reader saw there and that the report's attempt was handed."""
    return [(offset, row) for offset, row in view.between(place) if row in report.rows]


def count_hidden(view: View, report: Report, place: Place) -> int:
    """How many rows the reader did not see where the receipt has some. Rows of another attempt may lie in between, so
    the first and the last offset count, too."""
    seen = {offset for offset, _ in rows_between(view, report, place)}
    return max(0, place.count - len(seen), len({place.first, place.last} - seen)) if place.count else 0


def rows_out_of_order(history: History) -> Iterator[Finding | Excuse]:
    """Rows of a task that are in a partition in another order than that in which Spark handed them to the attempt that
    wrote them. If it can be one of several attempts, one of them must have been handed them in that order.

    Without transactions, what an attempt wrote that has died is visible, and nobody knows whose it is.
    """
    unknown: dict[str, set[Spot]] = defaultdict(set)
    for view in history.of_kind(COMMITTED):
        mixed = _mixed_places(history, view)
        for partition, rows in view.rows.items():
            last: dict[Attempt, tuple[int, str]] = {}
            for offset, row in sorted(rows.items()):
                spot = Spot(row, partition, offset)
                by = {report.attempt for report in history.authors(spot) if (report, partition) not in mixed}
                if not by and not history.workload(write_of(row)).exactly_once:
                    unknown[workload_of(write_of(row))].add(spot)
                before = [
                    last[attempt][1] for attempt in by if attempt in last and attempt.rows[row] < last[attempt][0]
                ]
                if by and len(before) == len(by):
                    text = f"{view.reader} saw {row} after {before[0]} in {partition}"
                    yield Finding(Kind.OUT_OF_ORDER, str(history.rows[write_of(row)][row]), text)
                last.update((each, (each.rows[row], row)) for each in by)
    for name, spots in unknown.items():
        yield Excuse(Reason.NO_AUTHOR, name, len(spots))


def _mixed_places(history: History, view: View) -> set[tuple[Report, Partition]]:
    """Where the reader saw more rows of an at-least-once attempt than its receipt counts: some are another one's."""
    return {
        (report, place.partition)
        for report in history.reports
        if not history.workload(report.task.write).exactly_once
        for place in report.places
        if len(rows_between(view, report, place)) > place.count
    }


def rows_without_a_receipt(history: History) -> Iterator[Finding | Excuse]:
    """Rows of exactly-once writes that are visible where no receipt of an attempt with them says that there are rows.

    Dead letters have no receipts, so a topic counts only if any receipt of the history names it.
    """
    uncompared: dict[str, set[str]] = defaultdict(set)
    for view in history.of_kind(COMMITTED):
        for spot in view.spots():
            task = history.rows[write_of(spot.row)].get(spot.row)
            if task is None or not history.workload(task.write).exactly_once:
                continue
            if spot.partition.topic not in history.topics:
                uncompared[spot.partition.topic].add(spot.row)
            elif not history.authors(spot):
                text = f"{view.reader} saw {spot.row} in {spot.where}, where no receipt has rows"
                yield Finding(Kind.RECEIPT_CONTRADICTED, str(task), text)
    for topic, rows in uncompared.items():
        yield Excuse(Reason.NO_RECEIPTS, topic, len(rows))


def contradicted_receipts(history: History) -> Iterator[Finding | Excuse]:
    """Receipts whose count, first or last offset is not what a read_uncommitted reader saw there.

    Rows of another attempt may lie between the offsets, so that there may be more, if another one was handed them, too.
    """
    readers = history.of_kind(UNCOMMITTED)
    for report in history.reports:
        for place in report.places:
            views = [view for view in readers if view.has_passed(place)]
            if place.count and not views:
                yield Excuse(Reason.NOT_READ, str(report.task))
            for view in views if place.count else ():
                seen = rows_between(view, report, place)
                own = [row for _, row in seen if len(history.attempts_of[row]) == 1]
                if len(own) > place.count or count_hidden(view, report, place):
                    said = f"{place.count} rows from {place.first} to {place.last}"
                    found = [f"{row} at {offset}" for offset, row in seen]
                    text = f"its receipt for {place.partition} says {said}, {view.reader} saw {listed(found) or 'none'}"
                    yield Finding(Kind.RECEIPT_CONTRADICTED, str(report.task), text)
                elif len(seen) > place.count:
                    yield Excuse(Reason.SEVERAL_ATTEMPTS, str(report.task))


def misplaced_rows(history: History) -> Iterator[Finding]:
    """Rows in a topic in which they do not belong, also aborted ones."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for view in history.views.values():
        for spot in view.spots():
            write = write_of(spot.row)
            workload = history.workload(write)
            if spot.row not in history.rows.get(write, ()):
                continue
            if spot.partition.topic != (due := workload.topic_of(spot.row)):
                text = f"{view.reader} saw rows in {spot.partition.topic} that belong to {due}"
                found[write, text].append(f"{spot.row} in {spot.where}")
    for (write, text), spots in found.items():
        yield Finding(Kind.MISPLACED, write, f"{text}: {listed(spots)}")


def foreign_rows(history: History) -> Iterator[Finding]:
    for view in history.views.values():
        for spot in view.spots():
            if spot.row not in history.rows.get(write_of(spot.row), {}):
                yield Finding(Kind.FOREIGN_ROW, spot.row, f"{view.reader} saw it in {spot.where}")


RULES: tuple[Callable[[History], Iterator[Finding | Excuse]], ...] = (
    rows_out_of_order,
    contradicted_receipts,
    rows_without_a_receipt,
    misplaced_rows,
    foreign_rows,
)
