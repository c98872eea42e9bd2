"""Judges a history: a pure function from events to findings. It imports nothing of the package that it judges.

``check`` knows of the sink only what docs/exactly-once.md promises.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from tests.histories.events import Event, number_of, workload_of, write_of
from tests.histories.index import COMMITTED, UNCOMMITTED, History, Partition, Place, Report, Task, Verdict, View

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
    DECIDED_BUT_ABORTED = "decided, but aborted"
    RECEIPT_CONTRADICTED = "receipt contradicted"
    FOREIGN_ROW = "row that no task was handed"
    READERS_DISAGREE = "readers disagree"


@dataclass(frozen=True, order=True)
class Finding:
    """``about``: a write, a row or a partition."""

    kind: Kind
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.about}: {self.text}"


def check(events: Iterable[Event]) -> list[Finding]:
    """Everything that contradicts the promises, none if the history keeps them."""
    history = History(events)
    return [finding for rule in RULES for finding in rule(history)]


def lost_rows(history: History) -> Iterator[Finding]:
    """Rows of a committed write that a reader which has read everything did not see.

    A repeated write counts as committed as well if a later number of its workload is.
    """
    visible = _visible(history)
    last = _last_committed(history)
    for write, rows in _rows_left(history).items():
        repeated = history.workload(write).repeats and number_of(write) < last.get(workload_of(write), -1)
        if not repeated and not history.committed_verdict(write):
            continue
        missing = [row for row in rows if row not in visible]
        if missing and not (len(missing) == len(rows) and history.committed_verdict(write)):
            yield Finding(Kind.LOST, write, f"{len(missing)} of {len(rows)} rows: {_listed(missing)}")


def rows_never_handed(history: History) -> Iterator[Finding]:
    """Committed writes for which the sink took fewer rows than Spark had, and numbers without any write below the last
    committed one of a repeated workload: a sink that skips rows loses them without a trace in what tasks were handed.
    """
    last = _last_committed(history)
    for name, workload in history.workloads.items():
        if workload.rows is None:
            continue
        numbers = {number_of(write): write for write in history.rows if workload_of(write) == name}
        for number, write in numbers.items():
            is_due = history.committed_verdict(write) or (workload.repeats and number < last.get(name, -1))
            if is_due and len(history.rows[write]) < workload.rows:
                text = f"tasks were handed {len(history.rows[write])} of {workload.rows} rows"
                yield Finding(Kind.LOST, write, text)
        if workload.repeats and numbers:
            for number in range(min(numbers), last.get(name, -1)):
                if number not in numbers:
                    yield Finding(Kind.LOST, f"{name}/{number}", "no task was handed a row of it")


def doubled_rows(history: History) -> Iterator[Finding]:
    """Rows of exactly-once writes that a read_committed reader saw at two places."""
    for view in history.of_kind(COMMITTED):
        for row, places in _places_of_rows(view).items():
            if len(places) > 1 and history.workload(write_of(row)).exactly_once:
                yield Finding(Kind.DOUBLED, row, f"{view.reader} saw it at {_listed(_offsets(places))}")


def aborted_rows_read(history: History) -> Iterator[Finding]:
    """Rows that a read_committed reader saw although their transaction was aborted, or their write never decided."""
    undecided: dict[str, str] = {}
    for view in history.of_kind(COMMITTED):
        for report in history.reports:
            ends = history.ends.get(report.transaction, set()) if report.transaction is not None else set()
            if (False, "aborted") not in ends or (True, "committed") in ends:
                continue
            for place in report.places:
                handed = history.handed(report)
                seen = [f"{place.partition} at {offset}" for offset, row in view.between(place) if row in handed]
                if seen:
                    text = f"{report.transaction} was aborted, and {view.reader} saw rows of it: {_listed(seen)}"
                    yield Finding(Kind.ABORTED_READ, str(report.task), text)
        for rows in view.rows.values():
            for row in rows.values():
                write = write_of(row)
                if history.workload(write).exactly_once and not _may_be_decided(history, write):
                    undecided.setdefault(write, f"{view.reader} saw {row}, and no intent names the write")
    for write, text in undecided.items():
        yield Finding(Kind.ABORTED_READ, write, text)


def partly_visible_batches(history: History) -> Iterator[Finding]:
    """Decided batches of which a reader that has passed all of their rows saw only some.

    Not a finding if a later intent repairs the batch, if an error said that it is decided, or if the driver of a job
    that is not repeated died: docs/exactly-once.md says so of ``neverRepeated``.
    """
    by_transaction = {report.transaction: report for report in history.reports if report.transaction is not None}
    for write, intents in history.intents.items():
        for number, intent in enumerate(intents):
            repaired = any(later.may_be_decided for later in intents[number + 1 :])
            if repaired or not intent.may_be_decided or _may_stay_torn(history, write):
                continue
            reports = [by_transaction[each] for each in intent.transactions if each in by_transaction]
            for view in history.of_kind(COMMITTED):
                yield from _torn(history, view, write, reports)


def _torn(history: History, view: View, write: str, reports: list[Report]) -> Iterator[Finding]:
    places = [(report, place) for report in reports for place in report.places]
    if not all(view.has_passed(place) for _, place in places):
        return
    shown, hidden = 0, []
    for report, place in places:
        handed = history.handed(report)
        seen = sum(row in handed for _, row in view.between(place))
        shown += seen
        if seen < place.count:
            hidden.append(f"{place.count - seen} of task {report.task.number} in {place.partition}")
    if shown and hidden:
        yield Finding(Kind.PARTLY_VISIBLE, write, f"{view.reader} passed all of it without {_listed(hidden)}")


def _may_stay_torn(history: History, write: str) -> bool:
    verdicts = history.verdicts[write]
    if any(verdict.claim != "none" for verdict in verdicts if verdict.outcome == "failed"):
        return not history.committed_verdict(write)
    return not verdicts and not history.workload(write).repeats


def rows_out_of_order(history: History) -> Iterator[Finding]:
    """Rows of a task that are in a partition in another order than that in which Spark handed them over."""
    for view in history.of_kind(COMMITTED):
        for partition, rows in view.rows.items():
            last: dict[object, tuple[int, str]] = {}
            for _, row in sorted(rows.items()):
                task = history.rows[write_of(row)].get(row)
                if task is None or not history.workload(task.write).exactly_once:
                    continue
                index = _index(history, row)
                before = last.get(task)
                if before is not None and index < before[0]:
                    text = f"{view.reader} saw {row} after {before[1]} in {partition}"
                    yield Finding(Kind.OUT_OF_ORDER, str(task), text)
                last[task] = index, row


def _index(history: History, row: str) -> int:
    task = history.rows[write_of(row)][row]
    return next(rows[row] for rows in history.attempts[task].values() if row in rows)


def failed_but_visible(history: History) -> Iterator[Finding]:
    """Writes that a run was told to have failed, without a word that they may be decided, and whose rows are visible,
    or were before their topic was deleted, although no other run can have written them."""
    visible = _visible(history) | _visible_until_deleted(history)
    for write, verdicts in history.verdicts.items():
        if not history.workload(write).exactly_once or not any(row in visible for row in history.rows[write]):
            continue
        for verdict in verdicts:
            if verdict.outcome != "failed" or verdict.claim != "none" or _was_excused(history, write, verdict):
                continue
            if not _decided_by_another_run(history, write, verdict):
                text = f"a run was told by {verdict.by} that it failed, and its rows are visible"
                yield Finding(Kind.FAILED_BUT_VISIBLE, write, text)
                break


def _decided_by_another_run(history: History, write: str, verdict: Verdict) -> bool:
    began = _began(history, write, verdict)
    return any(
        intent.may_be_decided and not (intent.start == verdict.start and began < intent.at <= verdict.at)
        for intent in history.intents[write]
    )


def _began(history: History, write: str, verdict: Verdict) -> float:
    """When the run of the verdict began: the driver says so, or the run before had its verdict then."""
    began = [at for at, start in history.began[write] if at <= verdict.at and start in (None, verdict.start)]
    if began:
        return began[-1]
    return max((each.at for each in history.verdicts[write] if each.at < verdict.at), default=float("-inf"))


def _was_excused(history: History, write: str, verdict: Verdict) -> bool:
    """Whether the sink's abort has said of the run that the write is decided."""
    began = _began(history, write, verdict)
    said = [claim for at, claim in history.gave_up[write] if began < at]
    told = [each.claim for each in history.verdicts[write] if began < each.at <= verdict.at]
    return any(claim != "none" for claim in (*said, *told))


def committed_but_invisible(history: History) -> Iterator[Finding]:
    """Writes that were told committed and of which no row is visible, and transactions that EndTxn has committed and
    some of whose rows a reader has passed without seeing them."""
    visible = _visible(history)
    for write, rows in _rows_left(history).items():
        if history.committed_verdict(write) and not any(row in visible for row in rows):
            yield Finding(Kind.COMMITTED_BUT_INVISIBLE, write, f"none of its {len(rows)} rows is visible")
    for report in history.reports:
        ended = report.transaction is not None and (True, "committed") in history.ends.get(report.transaction, set())
        for view in history.of_kind(COMMITTED) if ended else ():
            for place in filter(view.has_passed, report.places):
                seen = len(_rows_between(history, view, report, place))
                if seen < place.count:
                    where = f"{seen} of {place.count} rows in {place.partition}"
                    text = f"EndTxn committed {report.transaction}, and {view.reader} saw {where}"
                    yield Finding(Kind.COMMITTED_BUT_INVISIBLE, str(report.task), text)


def decided_but_aborted(history: History) -> Iterator[Finding]:
    """Transactions that a decided intent names, and that the sink has aborted nevertheless."""
    for write, intents in history.intents.items():
        for intent in intents:
            for transaction in intent.transactions if intent.outcome == "decided" else ():
                if (False, "aborted") in history.ends.get(transaction, set()):
                    yield Finding(Kind.DECIDED_BUT_ABORTED, write, f"{transaction} was aborted after the decision")


def rows_without_a_receipt(history: History) -> Iterator[Finding]:
    """Rows of exactly-once writes that are visible where no receipt of their task says that there are rows.

    Dead letters have no receipts, so a topic counts only if any receipt of the history names it.
    """
    places: dict[Task, list[Place]] = defaultdict(list)
    topics = {place.partition.topic for report in history.reports for place in report.places}
    for report in history.reports:
        places[report.task] += report.places
    for view in history.of_kind(COMMITTED):
        for partition, rows in view.rows.items():
            for offset, row in rows.items() if partition.topic in topics else ():
                task = history.rows[write_of(row)].get(row)
                if task is None or not history.workload(task.write).exactly_once:
                    continue
                if not any(each.partition == partition and each.first <= offset <= each.last for each in places[task]):
                    text = f"{view.reader} saw {row} in {partition} at {offset}, where no receipt has rows"
                    yield Finding(Kind.RECEIPT_CONTRADICTED, str(task), text)


def contradicted_receipts(history: History) -> Iterator[Finding]:
    """Receipts whose count, first or last offset is not what a read_uncommitted reader saw there.

    If a task had several attempts, rows of another one may lie between the offsets: then there may be more.
    """
    for view in history.of_kind(UNCOMMITTED):
        for report in history.reports:
            alone = len(history.attempts[report.task]) == 1
            for place in report.places:
                if not place.count or not view.has_passed(place):
                    continue
                offsets = [offset for offset, _ in _rows_between(history, view, report, place)]
                right = len(offsets) == place.count if alone else len(offsets) >= place.count
                if not right or not offsets or (offsets[0], offsets[-1]) != (place.first, place.last):
                    seen = f"{len(offsets)} rows" + (f" from {offsets[0]} to {offsets[-1]}" if offsets else "")
                    said = f"{place.count} rows from {place.first} to {place.last}"
                    text = f"its receipt for {place.partition} says {said}, {view.reader} saw {seen}"
                    yield Finding(Kind.RECEIPT_CONTRADICTED, str(report.task), text)


def foreign_rows(history: History) -> Iterator[Finding]:
    for view in history.views.values():
        for partition, rows in view.rows.items():
            for offset, row in rows.items():
                if row not in history.rows.get(write_of(row), {}):
                    yield Finding(Kind.FOREIGN_ROW, row, f"{view.reader} saw it in {partition} at {offset}")


def disagreeing_readers(history: History) -> Iterator[Finding]:
    """Readers that saw different rows at an offset, and read_committed readers of which only one saw a row that both
    have passed. What is committed, a read_uncommitted reader sees, too."""
    views = list(history.views.values())
    for number, one in enumerate(views):
        for other in views[number + 1 :]:
            for partition in one.rows.keys() | other.rows.keys():
                yield from _disagreement(one, other, partition)


def _disagreement(one: View, other: View, partition: Partition) -> Iterator[Finding]:
    limit = min(one.passed.get(partition, 0), other.passed.get(partition, 0))
    for offset in sorted(one.rows[partition].keys() | other.rows[partition].keys()):
        first, second = one.rows[partition].get(offset), other.rows[partition].get(offset)
        if first == second:
            continue
        if first is None or second is None:
            missed, isolation = (one, other.isolation) if first is None else (other, one.isolation)
            if offset >= limit or (isolation == UNCOMMITTED and missed.isolation == COMMITTED):
                continue
        text = f"at {offset} {one.reader} saw {first}, {other.reader} saw {second}"
        yield Finding(Kind.READERS_DISAGREE, str(partition), text)


RULES: tuple[Callable[[History], Iterator[Finding]], ...] = (
    lost_rows,
    rows_never_handed,
    doubled_rows,
    aborted_rows_read,
    partly_visible_batches,
    rows_out_of_order,
    failed_but_visible,
    committed_but_invisible,
    decided_but_aborted,
    contradicted_receipts,
    rows_without_a_receipt,
    foreign_rows,
    disagreeing_readers,
)


def _rows_between(history: History, view: View, report: Report, place: Place) -> list[tuple[int, str]]:
    handed = history.handed(report)
    return [(offset, row) for offset, row in view.between(place) if row in handed]


def _may_be_decided(history: History, write: str) -> bool:
    return any(intent.may_be_decided for intent in history.intents.get(write, ()))


def _visible(history: History) -> set[str]:
    """The rows of the reader that began last, which has read from the start; with one reader, of that one."""
    views = history.of_kind(COMMITTED)
    return {row for rows in views[-1].rows.values() for row in rows.values()} if views else set()


def _visible_until_deleted(history: History) -> set[str]:
    """The rows that a read_committed reader saw in topics that were deleted since."""
    read = (each for view in history.of_kind(COMMITTED) for each in view.rows.items())
    return {row for partition, rows in read if history.is_deleted(partition) for row in rows.values()}


def _rows_left(history: History) -> dict[str, list[str]]:
    """Write → its rows, without those that went with a deleted topic; only writes that have any.

    A row went with it if its task's decided transaction wrote to the topic: the one that the last decided intent names,
    or one that a later intent names whose outcome is not known.
    """
    by_transaction = {report.transaction: report for report in history.reports if report.transaction is not None}
    decided: dict[Task, list[Report]] = {}
    for intents in history.intents.values():
        for intent in intents:
            named = [by_transaction[each] for each in intent.transactions if each in by_transaction]
            for report in named if intent.may_be_decided else ():
                before = [] if intent.outcome == "decided" else decided.get(report.task, [])
                decided[report.task] = [*before, report]
    gone = {
        row
        for reports in decided.values()
        for report in reports
        if any(history.is_deleted(place.partition) for place in report.places)
        for row in history.handed(report)
    }
    left = ((write, [row for row in rows if row not in gone]) for write, rows in history.rows.items())
    return {write: rows for write, rows in left if rows}


def _last_committed(history: History) -> dict[str, int]:
    last: dict[str, int] = {}
    for write in history.verdicts:
        if history.committed_verdict(write):
            last[workload_of(write)] = max(number_of(write), last.get(workload_of(write), -1))
    return last


def _places_of_rows(view: View) -> dict[str, list[tuple[Partition, int]]]:
    places: dict[str, list[tuple[Partition, int]]] = defaultdict(list)
    for partition, rows in view.rows.items():
        for offset, row in rows.items():
            places[row].append((partition, offset))
    return places


def _offsets(places: list[tuple[Partition, int]]) -> list[str]:
    return [f"{partition} at {offset}" for partition, offset in places]


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
