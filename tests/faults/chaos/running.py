"""What every run of trouble does: rounds for as long as is said, steps that act together, and a line of progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from spark_kafka_sink.tools.demo.report import repeated
from tests.faults.chaos.plan import Round, Step, random_round
from tests.faults.chaos.troubles import TROUBLES, Trouble

STEP_S = 600.0
_LINE_EVERY_S = 15.0


class RoundError(AssertionError):
    """A round that does not end."""


class Running(Protocol):
    @property
    def elapsed_s(self) -> float: ...

    def status(self) -> str:
        """One line."""


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
            raise RoundError(f"round {number} did not end within {STEP_S:.0f} s")


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
