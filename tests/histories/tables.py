"""The tables of docs/proof.md as Markdown, from histories: faults, exceptions, and the longest times without a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.histories.checker import checked
from tests.histories.events import Event
from tests.histories.findings import Reason
from tests.histories.index import History
from tests.histories.timeline import Gap, faults_of, longest_gaps


@dataclass(frozen=True)
class Column:
    """What a history has for the tables. ``faults``: how many struck, by group and name. ``exceptions``: those that the
    checker made."""

    title: str
    faults: Mapping[tuple[str, str], int]
    exceptions: Mapping[Reason, int]
    gaps: Sequence[Gap]


def column_of(title: str, events: Sequence[Event]) -> Column:
    faults = Counter((span.group, span.name) for span in faults_of(events))
    return Column(title, faults, checked(History(events)).counts, longest_gaps(events))


def tables(columns: Sequence[Column]) -> str:
    """Faults by group and name, exceptions in the order of ``Reason``, and a table of gaps for each history."""
    faults = sorted({fault for column in columns for fault in column.faults})
    exceptions = [reason for reason in Reason if any(reason in column.exceptions for column in columns)]
    titles = [column.title for column in columns]
    of_faults = [(name, [column.faults.get((group, name), 0) for column in columns]) for group, name in faults]
    of_exceptions = [(each.value, [column.exceptions.get(each, 0) for column in columns]) for each in exceptions]
    parts = [
        _counts("fault", titles, of_faults),
        _counts("exception", titles, of_exceptions),
        *(_gaps(column) for column in columns),
    ]
    return "\n".join("\n".join(part) + "\n" for part in parts)


def _counts(what: str, titles: Sequence[str], rows: Iterable[tuple[str, list[int]]]) -> Iterator[str]:
    yield _row(what, *titles)
    yield "|---|" + "---:|" * len(titles)
    for name, counts in rows:
        yield _row(name, *map(str, counts))


def _gaps(column: Column) -> Iterator[str]:
    yield _row(f"writes of {column.title}", "longest, s", "made of")
    yield "|---|---:|---|"
    for gap in column.gaps:
        parts = ", ".join(str(part) for part in gap.parts if part.seconds >= 1)
        yield _row(f"`{gap.name}`", f"{gap.seconds:.0f}", parts)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
