"""Judges a history: a pure function from events to findings. It imports nothing of the package that it judges.

``check`` knows of the sink only what docs/exactly-once.md promises. What this file has are the rules about writes and
what was said of them; ``places.py`` has those about what lies where. A rule counts each exception that it makes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.soak.claims import DECIDED, DENIED, NONE, UNKNOWN
from tests.soak.events import COMMITTED, Event, number_of, workload_of, write_of
from tests.soak.findings import Checked, Excuse, Finding, Kind, Reason, listed
from tests.soak.history import (
    GivenUp,
    History,
    Intent,
    Report,
    Run,
    Spot,
    Verdict,
    View,
)
from tests.soak.places import RULES as RULES_ABOUT_PLACES
from tests.soak.places import count_hidden, rows_between


def check(events: Iterable[Event]) -> list[Finding]:
    """Everything that contradicts the promises, none if the history keeps them."""
    return checked(History(events)).findings


def checked(history: History) -> Checked:
    """The findings, and where the rules have looked away."""
    said = [each for rule in RULES for each in rule(history)]
    findings = [each for each in said if isinstance(each, Finding)]
    return Checked(findings, [each for each in said if isinstance(each, Excuse)])


def lost_rows(history: History) -> Iterator[Finding]:
    """Rows of a committed write that a reader which has read everything did not see.

    A repeated write counts as committed as well if a later number of its workload is. Of a write that was told
    committed and of which nothing is visible, another rule tells.
    """
    visible = history.visible_at_last
    for write, rows in history.rows.items():
        missing = [row for row in rows if row not in visible] if history.is_due(write) else []
        if missing and not (len(missing) == len(rows) and history.committed_verdict(write)):
            yield Finding(Kind.LOST, write, f"{len(missing)} of {len(rows)} rows: {listed(missing)}")


def rows_handed(history: History) -> Iterator[Finding]:
    """Committed writes for which the sink took fewer rows than there were, or none, or more: a sink that skips rows
    loses them without a trace in what tasks were handed. Of a repeated workload, every number from the first that has
    begun to the last committed one is due.
    """
    last = history.last_committed
    due = {write for write in history.verdicts if history.committed_verdict(write)}
    for write in history.begun():
        name = workload_of(write)
        if history.workload(write).repeats:
            due.update(f"{name}/{number}" for number in range(number_of(write), last.get(name, -1)))
    for write in sorted(due):
        rows, taken = history.workload(write).rows, len(history.rows.get(write, ()))
        if taken < rows:
            yield Finding(Kind.LOST, write, f"tasks were handed {taken or 'none'} of {rows} rows")
        elif taken > rows:
            yield Finding(Kind.FOREIGN_ROW, write, f"tasks were handed {taken} rows of {rows}")


def doubled_rows(history: History) -> Iterator[Finding | Excuse]:
    """Rows of exactly-once writes that a read_committed reader saw at two places."""
    allowed: dict[str, set[str]] = defaultdict(set)
    for view in history.of_kind(COMMITTED):
        for row, spots in _spots_of_rows(view).items():
            if len(spots) < 2:
                continue
            if history.workload(write_of(row)).exactly_once:
                yield Finding(Kind.DOUBLED, row, f"{view.reader} saw it at {listed([spot.where for spot in spots])}")
            else:
                allowed[workload_of(write_of(row))].add(row)
    for name, rows in allowed.items():
        yield Excuse(Reason.AT_LEAST_ONCE, name, len(rows))


def aborted_rows_read(history: History) -> Iterator[Finding]:
    """Rows that a read_committed reader saw although their transaction was aborted, or no decided intent names it."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for view in history.of_kind(COMMITTED):
        for spot in view.spots():
            write = write_of(spot.row)
            if history.workload(write).exactly_once and (why := _why_aborted(history, spot, write)):
                task = history.rows[write].get(spot.row)
                found[str(task or write), f"{why}, and {view.reader} saw rows of it"].append(spot.where)
    for (about, text), spots in found.items():
        yield Finding(Kind.ABORTED_READ, about, f"{text}: {listed(spots)}")


def _why_aborted(history: History, spot: Spot, write: str) -> str:
    """Why the row there may not be visible, "" if it may."""
    authors = history.authors(spot)
    if not authors:  # a finding of its own, if the write is decided
        decided = any(intent.may_be_decided for intent in history.intents.get(write, ()))
        return "" if decided else f"no intent names {write}"
    named = [author.transaction for author in authors if author.transaction in history.decided]
    if not named:
        return f"no intent that may be decided names {authors[0].transaction}"
    return f"{named[0]} was aborted" if all(map(history.is_aborted, named)) else ""


@dataclass(frozen=True)
class _Torn:
    """A decided batch of which a reader saw only some rows, or none, though it has passed all of them. ``hidden``: how
    many rows of each report it did not see. ``later``: the intents after the batch's own."""

    write: str
    later: tuple[Intent, ...]
    view: View
    hidden: dict[Report, int]
    shown: bool


def partly_visible_batches(history: History) -> Iterator[Finding | Excuse]:
    """Decided batches of which a reader that has passed all of their rows saw only some. Of a write that is not
    repeated, it must have seen some, too.

    Not a finding if later runs have written just these rows again, or if an error said that the batch is decided and
    nobody has run it since.
    """
    torn, unread = _torn_batches(history)
    for write in unread:
        yield Excuse(Reason.NOT_READ, write)
    visible = history.visible({each.write for each in torn})
    excused: set[tuple[Reason, str]] = set()
    for each in torn:
        reason = _why_torn(history, each, visible[each.write])
        if reason is not None:
            excused.add((reason, each.write))
            continue
        hidden = [f"{count} of {report.task}" for report, count in each.hidden.items()]
        kind = Kind.PARTLY_VISIBLE if each.shown else Kind.COMMITTED_BUT_INVISIBLE
        yield Finding(kind, each.write, f"{each.view.reader} passed all of it without {listed(hidden)}")
    for reason, write in excused:
        yield Excuse(reason, write)


def _torn_batches(history: History) -> tuple[list[_Torn], list[str]]:
    """The batches, and the writes of those that no reader has read to their ends."""
    torn, unread = [], []
    for write, intents in history.intents.items():
        for number, intent in enumerate(intents):
            if not intent.may_be_decided:
                continue
            named = [history.by_transaction[each] for each in intent.transactions if each in history.by_transaction]
            later = tuple(each for each in intents[number + 1 :] if each.may_be_decided)
            views = [view for view in history.of_kind(COMMITTED) if _has_passed(view, named)]
            if not views:
                unread.append(write)
            for view in views:
                counts = {report: sum(count_hidden(view, report, place) for place in report.places) for report in named}
                hidden = {report: count for report, count in counts.items() if count}
                shown = any(count < sum(place.count for place in report.places) for report, count in counts.items())
                is_due = intent.outcome == "decided" and not history.workload(write).repeats
                if hidden and (shown or is_due):
                    torn.append(_Torn(write, later, view, hidden, shown))
    return torn, unread


def _has_passed(view: View, reports: list[Report]) -> bool:
    return all(view.has_passed(place) for report in reports for place in report.places)


def _why_torn(history: History, torn: _Torn, visible: set[Spot]) -> Reason | None:
    """The exception that allows it, if there is one."""
    if all(_is_repaired(history, torn, report, count, visible) for report, count in torn.hidden.items()):
        return Reason.TORN_AND_REPAIRED
    told = [each for each in history.told_failed(torn.write) if each.claim in (DECIDED, UNKNOWN)]
    again = any(history.began_after(torn.write, each.at) for each in told)
    excused = told and torn.shown and not again and not history.committed_verdict(torn.write)
    return Reason.TORN_AND_TOLD if excused else None


def _is_repaired(history: History, torn: _Torn, report: Report, count: int, visible: set[Spot]) -> bool:
    """Whether rows that the report's transaction has lost are visible where transactions of later intents have them."""
    own = {row for place in report.places for _, row in rows_between(torn.view, report, place)}
    later = {transaction for intent in torn.later for transaction in intent.transactions}
    again = {
        spot.row
        for spot in visible
        if spot.row in report.rows
        and spot.row not in own
        and any(author.transaction in later for author in history.authors(spot))
    }
    return len(again) >= count


def failed_but_visible(history: History) -> Iterator[Finding | Excuse]:
    """Runs that were told to have failed, without a word that they may be decided, and whose rows are visible. So are
    runs of which abort has said that none of their rows is visible.

    A row is one of the run if receipts say that an attempt of the run wrote it at its place, or if it was handed to
    such an attempt and no receipt has that place.
    """
    failed = _failed_runs(history)
    for write, spots in history.visible(failed).items():
        for run, by in failed[write].items():
            own = _rows_of(history, write, run, spots)
            reason = _why_visible(history, write, run) if own else Reason.OTHER_RUN
            if reason is not None:
                yield Excuse(reason, write)
                continue
            text = f"a run was told by {by} that it failed, and rows that it wrote are visible: {listed(own)}"
            yield Finding(Kind.FAILED_BUT_VISIBLE, write, text)


def _failed_runs(history: History) -> dict[str, dict[Run, str]]:
    """Exactly-once write → its runs that failed, and who has said so first."""
    failed: dict[str, dict[Run, str]] = {}
    for write in history.rows:
        told = [(each.at, each.start, each.by) for each in history.told_failed(write)]
        denied = [each for each in history.gave_up.get(write, ()) if each.claim == DENIED]
        told += [(each.at, each.start, "the sink's abort") for each in denied]
        if told and history.workload(write).exactly_once:
            runs = failed.setdefault(write, {})
            for at, start, by in told:
                runs.setdefault(history.run(write, at, start), by)
    return failed


def _rows_of(history: History, write: str, run: Run, spots: Iterable[Spot]) -> list[str]:
    """The rows that the run wrote where readers saw them."""
    attempts = history.attempts_in(write, run)
    found = []
    for spot in sorted(spots):
        by = {report.attempt for report in history.authors(spot)} or set(history.attempts_of.get(spot.row, ()))
        if not attempts.isdisjoint(by):
            found.append(f"{spot.row} in {spot.where}")
    return found


def _why_visible(history: History, write: str, run: Run) -> Reason | None:
    """What one of the run's errors, or the sink's abort, has said about the decision. Nothing excuses a promise that no
    row becomes visible."""

    def of_run(each: Verdict | GivenUp) -> bool:
        return run.has(each.at, each.start)

    told = {each.claim for each in history.told_failed(write) if of_run(each)} - {NONE}
    logged = {each.claim for each in history.gave_up[write] if of_run(each)} - {NONE}
    if DENIED in told | logged:
        return None
    for claim, reason in ((UNKNOWN, Reason.TOLD_UNKNOWN), (DECIDED, Reason.TOLD_DECIDED)):
        if claim in told:
            return reason
    return Reason.LOGGED_DECIDED if logged else None


def committed_but_invisible(history: History) -> Iterator[Finding]:
    """Writes that were told committed and of which no row is visible, and transactions that EndTxn has committed and
    some of whose rows a reader has passed without seeing them."""
    visible = history.visible_at_last
    for write, rows in history.rows.items():
        if history.committed_verdict(write) and not any(row in visible for row in rows):
            yield Finding(Kind.COMMITTED_BUT_INVISIBLE, write, f"none of its {len(rows)} rows is visible")
    for report in history.reports:
        ended = report.transaction is not None and (True, "committed") in history.ends.get(report.transaction, set())
        for view in history.of_kind(COMMITTED) if ended else ():
            for place in filter(view.has_passed, report.places):
                if hidden := count_hidden(view, report, place):
                    where = f"{place.partition} without {hidden} of {place.count} rows"
                    text = f"EndTxn committed {report.transaction}, and {view.reader} passed {where}"
                    yield Finding(Kind.COMMITTED_BUT_INVISIBLE, str(report.task), text)


def nameless_events(history: History) -> Iterator[Excuse]:
    """What the rules cannot judge, because nobody knows of which write it is."""
    return (Excuse(Reason.NAMELESS, text) for text in history.nameless)


RULES: tuple[Callable[[History], Iterator[Finding | Excuse]], ...] = (
    lost_rows,
    rows_handed,
    doubled_rows,
    aborted_rows_read,
    partly_visible_batches,
    failed_but_visible,
    committed_but_invisible,
    nameless_events,
    *RULES_ABOUT_PLACES,
)


def _spots_of_rows(view: View) -> dict[str, list[Spot]]:
    found: dict[str, list[Spot]] = defaultdict(list)
    for spot in view.spots():
        found[spot.row].append(spot)
    return found
