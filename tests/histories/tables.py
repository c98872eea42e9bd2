"""The tables of docs/proof.md as Markdown, from histories: faults, exceptions, and the longest times without a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.histories.checker import checked
from tests.histories.events import Event
from tests.histories.figures import figures_of
from tests.histories.findings import Reason
from tests.histories.index import History
from tests.histories.timeline import Gap, group_of, longest_gaps


@dataclass(frozen=True)
class Column:
    """What a history has for the tables. ``faults``: by their names. ``exceptions``: those that the checker made."""

    title: str
    faults: Mapping[str, int]
    exceptions: Mapping[str, int]
    gaps: Sequence[Gap]


def column_of(title: str, events: Sequence[Event]) -> Column:
    exceptions = {reason.value: count for reason, count in checked(History(events)).counts.items()}
    return Column(title, figures_of(events).faults, exceptions, longest_gaps(events))


def tables(columns: Sequence[Column]) -> str:
    """Faults by group and name, exceptions in the order of ``Reason``, and a table of gaps for each history."""
    faults = sorted({name for column in columns for name in column.faults}, key=lambda name: (group_of(name), name))
    made = {reason for column in columns for reason in column.exceptions}
    exceptions = [reason.value for reason in Reason if reason.value in made]
    parts = [
        _counts("fault", faults, columns, lambda column: column.faults),
        _counts("exception", exceptions, columns, lambda column: column.exceptions),
        *(_gaps(column) for column in columns),
    ]
    return "\n".join("\n".join(part) + "\n" for part in parts)


def _counts(
    what: str, names: Iterable[str], columns: Sequence[Column], counts: Callable[[Column], Mapping[str, int]]
) -> Iterator[str]:
    yield _row(what, *(column.title for column in columns))
    yield "|---|" + "---:|" * len(columns)
    for name in names:
        yield _row(name, *(str(counts(column).get(name, 0)) for column in columns))


def _gaps(column: Column) -> Iterator[str]:
    yield _row(f"writes of {column.title}", "longest, s", "made of")
    yield "|---|---:|---|"
    for gap in column.gaps:
        parts = ", ".join(str(part) for part in gap.parts if part.seconds >= 1)
        yield _row(f"`{gap.name}`", f"{gap.seconds:.0f}", parts)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
