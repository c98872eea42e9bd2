"""What every run of trouble does: rounds for as long as is said, steps that act together, and a line of progress."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from examples.demo.report import repeated
from tests.faults.chaos.kafka import ChaosKafka
from tests.faults.chaos.plan import Round, Step, random_round
from tests.faults.chaos.troubles import TROUBLES, NotReachedError, Trouble, Troubled

STEP_S = 600.0
_LINE_EVERY_S = 15.0


class RunError(AssertionError):
    """A promise that does not hold, or an end that does not come."""


class Running(Protocol):
    @property
    def elapsed_s(self) -> float: ...

    def status(self) -> str:
        """One line."""


class TroubledRun(ABC):
    """Rounds of trouble. ``tell`` gets a line for whatever happens. ``now``: the steps that act, each with the name of
    what it troubles."""

    def __init__(self, kafka: ChaosKafka, troubles: Mapping[str, Trouble[Any]], tell: Callable[[str], None]) -> None:
        self.kafka = kafka
        self.rounds = 0
        self.now: dict[Step, str] = {}
        self._troubles = troubles
        self._tell = tell
        self._errors: list[str] = []
        self._began = time.monotonic()

    @abstractmethod
    def _hits(self) -> Mapping[str, Troubled]:
        """All that can be troubled, by name."""

    @abstractmethod
    def _drawn(self, step: Step) -> str:
        """The name of what the step troubles."""

    @abstractmethod
    def _note(self, step: Step, name: str, phase: str) -> None:
        """``phase``: begins, ends, or missed."""

    @abstractmethod
    def _check_readers(self) -> None:
        """Raises what a reader may not see."""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def say(self, line: str) -> None:
        self._tell(f"{self.elapsed_s:7.1f} s  {line}")

    def check(self) -> None:
        self._check_readers()
        if self._errors:
            raise RunError("; ".join(self._errors))

    def act(self, number: int, steps: Round) -> None:
        """A round, after which everything is healed."""
        self.rounds = number
        self.say(f"round {number}: {'; '.join(map(str, steps))}")
        act_together(number, steps, self._act, self.check)
        for hit in self._hits().values():
            hit.heal()
        self.kafka.heal()

    def await_rows(self, goal: Mapping[str, int], what: str, timeout_s: float) -> None:
        """Until each has so many."""
        deadline = time.monotonic() + timeout_s
        hits = self._hits()
        while late := [name for name, rows in goal.items() if hits[name].rows < rows]:
            self.check()
            if time.monotonic() > deadline:
                tails = "\n".join(f"{name}:\n{hits[name].drivers.log_tail()}" for name in late)
                raise RunError(f"waited {timeout_s:.0f} s in vain until {what}\n{tails}")
            time.sleep(0.2)

    def _act(self, step: Step) -> None:
        time.sleep(step.at)
        name = self._drawn(step)
        hit = self._hits()[name]
        self.now[step] = name
        self._note(step, name, "begins")
        try:
            self._troubles[step.trouble].act(hit, step)
            self._note(step, name, "ends")
        except NotReachedError:
            hit.fault.disarm()
            self._note(step, name, "missed")
            self.say(f"nothing there for {step.trouble} of {name}")
        except BaseException as error:
            self._errors.append(f"{step}: {error!r}")
        finally:
            self.now.pop(step)


def rounds(
    seed: int, minutes: float, first: int = 1, troubles: Mapping[str, Trouble[Any]] = TROUBLES
) -> Iterator[Round]:
    """Those of the seed, from the number ``first`` on; none begins after so many minutes."""
    until = time.monotonic() + 60 * minutes
    number = first
    while time.monotonic() < until:
        yield random_round(seed, number, troubles)
        number += 1


def act_together(number: int, steps: Round, act: Callable[[Step], None], check: Callable[[], None]) -> None:
    """A thread for each step of the round. ``check`` is called all the time, and may raise."""
    threads = [threading.Thread(target=act, args=(step,), daemon=True) for step in steps]
    deadline = time.monotonic() + STEP_S
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.5)
            check()
        if thread.is_alive():
            raise RunError(f"round {number} did not end within {STEP_S:.0f} s")


@contextmanager
def progress(console: Console, running: Running) -> Iterator[None]:
    """A live line on a terminal, else a line every 15 s."""

    def line() -> Text:
        return Text(f"{running.elapsed_s / 60:5.1f} min | {running.status()}")

    if not console.is_terminal:
        with repeated(lambda: console.print(line(), soft_wrap=True), _LINE_EVERY_S):
            yield
        return
    with Live(console=console, refresh_per_second=4) as shown, repeated(lambda: shown.update(line()), 0.25):
        yield
