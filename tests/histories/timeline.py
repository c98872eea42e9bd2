"""When rows arrived, when faults struck, and what the time without a row is made of. It judges nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tests.faults.chaos.troubles import Group
from tests.histories.events import LIVE, Event, workload_of, write_of
from tests.histories.troubles import TROUBLES

GROUPS = tuple(group.value for group in Group)
"""What a fault strikes."""

# What the time until an event was spent on. The key is its kind, with its outcome or phase if it has one.
_UNTIL = MappingProxyType(
    {
        "driver started": "until another driver process is started",
        "driver session": "Python and Spark start",
        "step planning begins": "until the sink plans",
        "step driver initialised": "planning, until the driver's transactional id is initialised",
        "step planned": "planning, until the previous batch is finished",
        "began": "until the next write begins",
        "handed": "until Spark hands rows to a task",
        "reported": "tasks write",
        "failed": "until a task has failed",
        "intent asked": "from the last task's report to the commit",
        "intent decided": "the decision is written",
        "intent not decided": "until the decision is refused",
        "intent unknown": "until the decision times out",
        "end asked": "until commit or abort ends transactions",
        "verdict failed": "until a write has failed",
        "verdict committed": "until a write has ended",
        "gave up": "until a write is aborted",
        "seen": "until readers see the rows",
    }
)
_LEAST_SHARE = 0.02
_ENDED = "EndTxn"
_NEW_START = "another driver starts, and Spark with it"


@dataclass(frozen=True)
class Span:
    """A fault. ``workload``: the one for which it was drawn."""

    name: str
    workload: str
    began: float
    ended: float

    @property
    def group(self) -> str:
        """The one of ``GROUPS`` that the trouble of this name belongs to."""
        return TROUBLES[self.name].group.value


@dataclass(frozen=True)
class Part:
    """``under_fault``: how much of ``seconds`` passed while a fault lasted that can hit the workload."""

    what: str
    seconds: float
    under_fault: float

    def __str__(self) -> str:
        share = f" ({self.under_fault:.0f} s of it during a fault)" if self.under_fault >= 1 else ""
        return f"{self.seconds:.0f} s {self.what}{share}"


@dataclass(frozen=True)
class Stall:
    """Time between two rows that the read_committed reader got, in the seconds of the history's clock."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Gap:
    """The longest time without a row of ``name``. ``parts``: longest first."""

    name: str
    stall: Stall
    parts: tuple[Part, ...]
    faults: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return self.stall.seconds

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.seconds:.0f} s without a row",
            *(f"  {part}" for part in self.parts if part.seconds >= 1),
            f"  faults: {', '.join(self.faults) or 'none'}",
        ]
        return "\n".join(lines)


def faults_of(events: Sequence[Event]) -> list[Span]:
    """Those that struck, in the order in which they began. One that has no end lasts until the last event."""
    open_: dict[tuple[str, str], list[float]] = defaultdict(list)
    found = []
    for event in events:
        if event.kind != "fault":
            continue
        key = event["name"], event["workload"]
        if event["phase"] == "begins":
            open_[key].append(event.at)
        elif open_[key]:
            began = open_[key].pop(0)
            if event["phase"] == "ends":
                found.append(Span(*key, began, event.at))
    last = events[-1].at if events else 0.0
    found += [Span(*key, began, last) for key, left in open_.items() for began in left]
    return sorted(found, key=lambda span: span.began)


def arrivals_of(events: Iterable[Event]) -> dict[str, list[tuple[float, int]]]:
    """By the name of writes: when the read_committed reader got rows, and how many it had then."""
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        if event.kind != "seen" or event["reader"] != LIVE:
            continue
        counts: dict[str, int] = defaultdict(int)
        for _, row in event["rows"]:
            counts[workload_of(write_of(row))] += 1
        for name, count in counts.items():
            before = found[name][-1][1] if found[name] else 0
            found[name].append((event.at, before + count))
    return dict(found)


def longest_stall(times: Sequence[float]) -> Stall | None:
    """The first one of the longest between these times, None if there are less than two."""
    stalls = map(Stall, times, times[1:])
    return max(stalls, key=lambda stall: stall.seconds, default=None)


def longest_gaps(events: Sequence[Event]) -> list[Gap]:
    """One for each name of writes, the longest first."""
    spans = faults_of(events)
    actors = {workload_of(event["write"]): event.actor for event in events if event.kind == "handed"}
    own: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        own[event.get("workload") if event.kind == "driver" else event.actor].append(event)
    gaps = []
    for name, arrivals in arrivals_of(events).items():
        stall = longest_stall([at for at, _ in arrivals])
        if stall is not None:
            gaps.append(_gap(name, stall, own[actors.get(name, name)], _that_hit(spans, actors.get(name))))
    return sorted(gaps, key=lambda gap: -gap.seconds)


def _that_hit(spans: Iterable[Span], actor: str | None) -> list[Span]:
    """Faults of the workload, and those of brokers, which hit all."""
    return [span for span in spans if span.workload == actor or span.group == Group.BROKERS.value]


def _gap(name: str, stall: Stall, own: Iterable[Event], spans: list[Span]) -> Gap:
    began, ended = stall.began, stall.ended
    known = _starts_before(own, began)
    inside = [event for event in own if began < event.at < ended]
    parts: dict[str, list[float]] = {}
    last = began
    for at, what in [*_reasons(inside, known), (ended, _UNTIL["seen"])]:
        part = parts.setdefault(what, [0.0, 0.0])
        part[0] += at - last
        part[1] += _covered(spans, last, at)
        last = at
    longest = sorted(parts.items(), key=lambda item: -item[1][0])
    hit = [span for span in spans if span.began < ended and span.ended > began]
    faults = tuple(f"{span.name} ({max(span.began, began) - began:.0f} s after the last row)" for span in hit)
    return Gap(name, stall, tuple(Part(what, *seconds) for what, seconds in longest), faults)


def _reasons(inside: Iterable[Event], known: set[str]) -> Iterator[tuple[float, str]]:
    """When something happened, and what the time until then was spent on."""
    for event in inside:
        what = _what(event)
        if what is None:
            continue
        start = _start_of(event)
        if start is not None and start not in known:
            known.add(start)
            if event.kind not in ("driver", "step"):
                what = _NEW_START
        yield event.at, what


def _starts_before(own: Iterable[Event], at: float) -> set[str]:
    """Drivers that had shown themselves by then."""
    return {start for event in own if event.at <= at and (start := _start_of(event)) is not None}


def _start_of(event: Event) -> str | None:
    if attempt := event.get("attempt"):
        return str(attempt).split("-", 1)[0]
    return event.get("start")


def _what(event: Event) -> str | None:
    if event.kind == "verdict" and event["by"] != "sink" and event.get("start") is None:
        return None  # what the soak has found in a checkpoint
    detail = event.get("step") or event.get("phase") or event.get("outcome")
    if event.kind == "end" and detail != "asked":
        return _ENDED
    return _UNTIL.get(event.kind) or _UNTIL.get(f"{event.kind} {detail}")


def _covered(spans: Sequence[Span], began: float, ended: float) -> float:
    """How long at least one of them lasted between these times."""
    covered, until = 0.0, began
    for span in spans:
        first, last = max(span.began, until), min(span.ended, ended)
        if last > first:
            covered += last - first
            until = last
    return covered


def seconds_without_a_row(times: Sequence[float], ended: float) -> tuple[list[float], list[float]]:
    """A line for a plot: it grows until a row comes, and falls to 0 then. Gaps that would not be seen are left out."""
    gaps = list(zip(times, [*times[1:], ended], strict=True))
    least = max((at - before for before, at in gaps), default=0.0) * _LEAST_SHARE
    x, y = [], []
    for before, at in gaps:
        if at - before >= least:
            x += [before, at, at]
            y += [0.0, at - before, 0.0]
    return x, y


def thinned(arrivals: Sequence[tuple[float, int]], apart_s: float) -> list[tuple[float, int]]:
    """The last one of each such time."""
    return list({int(at / apart_s): (at, count) for at, count in arrivals}.values())
