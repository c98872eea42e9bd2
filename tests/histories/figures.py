"""Counts of a history, for the report of a run. It judges nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.histories.events import Event, workload_of, write_of
from tests.histories.index import COMMITTED


@dataclass(frozen=True)
class Stall:
    """The longest time between two rows that a read_committed reader got. ``until``: seconds after the first event."""

    seconds: float = 0.0
    until: float = 0.0

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s, until second {self.until:.0f}"


@dataclass(frozen=True)
class Figures:
    """``stalls``: by workload; "" is that of all workloads together. ``verdicts``: Spark's, by their outcome."""

    events: int
    seconds: float
    handed: int
    visible: int
    written: int
    verdicts: dict[str, int]
    intents: int
    faults: dict[str, int]
    missed: dict[str, int]
    stalls: dict[str, Stall]

    def __str__(self) -> str:
        verdicts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.verdicts.items()))
        lines = [
            f"{self.events} events in {self.seconds / 60:.1f} minutes",
            f"{self.handed} rows were handed to tasks, {self.visible} are visible to read_committed, and "
            f"{self.written - self.visible} more records were written and aborted",
            f"Spark's verdicts: {verdicts}; {self.intents} intents",
            f"longest time without a row: {self.stalls.get('', Stall())}",
            *(f"  {name}: {stall}" for name, stall in sorted(self.stalls.items()) if name),
            "faults:",
            *(f"{count:5} {name}" for name, count in sorted(self.faults.items())),
            *(f"{count:5} {name} (nothing there)" for name, count in sorted(self.missed.items())),
        ]
        return "\n".join(lines)


def figures_of(events: Iterable[Event]) -> Figures:
    told = sorted(events, key=lambda event: event.at)
    handed: set[str] = set()
    seen: dict[str, int] = defaultdict(int)
    verdicts: Counter[str] = Counter()
    faults: dict[str, Counter[str]] = defaultdict(Counter)
    for event in told:
        if event.kind == "handed":
            handed.update(event["rows"])
        elif event.kind == "seen":
            seen[event["reader"]] += len(event["rows"])
        elif event.kind == "verdict" and event["by"] == "spark":
            verdicts[event["outcome"]] += 1
        elif event.kind == "fault":
            faults[event["phase"]][event["name"]] += 1
    return Figures(
        events=len(told),
        seconds=told[-1].at - told[0].at if told else 0.0,
        handed=len(handed),
        visible=seen["live"],
        written=seen["raw"],
        verdicts=dict(verdicts),
        intents=sum(event.kind == "intent" and event["outcome"] == "asked" for event in told),
        faults=dict(faults["ends"]),
        missed=dict(faults["missed"]),
        stalls=_stalls(told),
    )


def _stalls(told: list[Event]) -> dict[str, Stall]:
    last: dict[str, float] = {}
    longest: dict[str, Stall] = {}
    for event in told:
        if event.kind != "seen" or event["isolation"] != COMMITTED or event["reader"] != "live":
            continue
        for name in {"", *(workload_of(write_of(row)) for _, row in event["rows"])}:
            seconds = event.at - last.get(name, event.at)
            if seconds > longest.get(name, Stall()).seconds:
                longest[name] = Stall(seconds, event.at - told[0].at)
            last[name] = event.at
    return longest
