"""Counts of a history, for the report of a run. It judges nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.histories.events import LIVE, RAW, Event
from tests.histories.timeline import Stall, arrivals_of, longest_stall


@dataclass(frozen=True)
class Figures:
    """``stalls``: the longest by the name of writes, in seconds after the first event; "" is that of all together.
    ``verdicts``: Spark's, by their outcome."""

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
            "longest time without a row:",
            *(
                f"  {name or 'of all workloads'}: {stall.seconds:.0f} s, until second {stall.ended:.0f}"
                for name, stall in sorted(self.stalls.items())
            ),
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
        visible=seen[LIVE],
        written=seen[RAW],
        verdicts=dict(verdicts),
        intents=sum(event.kind == "intent" and event["outcome"] == "asked" for event in told),
        faults=dict(faults["ends"]),
        missed=dict(faults["missed"]),
        stalls=_stalls(told),
    )


def _stalls(told: list[Event]) -> dict[str, Stall]:
    times = {name: [at for at, _ in arrivals] for name, arrivals in arrivals_of(told).items()}
    times[""] = sorted(at for each in times.values() for at in each)
    longest = {name: longest_stall(each) for name, each in times.items()}
    return {
        name: Stall(stall.began - told[0].at, stall.ended - told[0].at)
        for name, stall in longest.items()
        if stall is not None
    }
