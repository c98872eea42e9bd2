"""A round: Hypothesis tries inputs of a target, and makes the first one that crashes it as small as it can."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Set
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.bounds import bounded
from tests.fuzz.targets import Target
from tests.repository.files import PACKAGE


@dataclass(frozen=True)
class Crash:
    """An error that a target may not raise. ``place``: its class and where in the package; the same for one defect."""

    data: bytes
    place: str
    text: str


@dataclass(frozen=True)
class Round:
    """The end of a round. ``runs`` includes the runs that shrank the crash's input."""

    runs: int
    crash: Crash | None


def attempt(target: Target, data: bytes) -> Crash | None:
    """Lets the target read the data, within bounds."""
    try:
        bounded(lambda: target.read(data), len(data))
    except Exception as error:
        return Crash(data, _place(error), "".join(traceback.format_exception(error)))
    return None


def one_round(
    target: Target, number: int, examples: int, known: Set[str] = frozenset(), note: Callable[[bytes], object] = len
) -> Round:
    """``number``: the seed, so that a round can be repeated. ``known``: places of crashes to pass over.

    ``note`` is called with each input before it is read.
    """
    runs = 0
    smallest: Crash | None = None

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(target.inputs)
    def reads(data: bytes) -> None:
        nonlocal runs, smallest
        runs += 1
        note(data)
        crash = attempt(target, data)
        if crash is not None and crash.place not in known:
            smallest = crash
            raise AssertionError(crash.place)

    try:
        reads()
    except Exception:  # Hypothesis has errors of its own for a crash that comes and goes
        if smallest is None:
            raise
    return Round(runs, smallest)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(PACKAGE))] or frames
    name = ours[-1].filename.removeprefix(f"{PACKAGE.parent}/")
    return f"{type(error).__name__} in {name}:{ours[-1].name}"
