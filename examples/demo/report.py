"""The demo's output: progress bars, tables, results."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.table import Table

from examples.demo.check import TopicCheck

_DONE = "[green]✓[/]"
_FAILED = "[red]✗[/]"
_SAMPLES = 3
_LEAST_VALUE = 20
_BESIDE_VALUE = 9 + 6 + 6 + 4 * 4


class _MarkColumn(SpinnerColumn):
    """A spinner while the step runs, then ✓ or ✗."""

    def render(self, task: Task) -> RenderableType:
        return task.fields["mark"] or super().render(task)


class Step:
    """The line of a running step. Any thread may update it."""

    def __init__(self, progress: Progress, name: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, mark="", detail="", clock="")
        self._began = time.monotonic()
        self.seconds = 0.0

    def advance(self, number: int) -> None:
        self._progress.advance(self._task, number)

    def advance_to(self, number: int) -> None:
        self._progress.update(self._task, completed=number)

    def detail(self, text: str) -> None:
        """The text after the bar."""
        self._progress.update(self._task, detail=escape(text))

    def stop_clock(self) -> None:
        """Ends the step's time; ``seconds`` is its duration."""
        self.seconds = time.monotonic() - self._began

    def finish(self, mark: str) -> None:
        if not self.seconds:
            self.stop_clock()
        if mark == _DONE and self._progress.tasks[0].total is None:
            self._progress.update(self._task, total=1, completed=1)
        self._progress.update(self._task, mark=mark, clock=f"{self.seconds:.1f} s")


class Report:
    """Writes to standard output: live bars on a terminal, else a line per finished step."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Step]:
        """A line for the duration of the block; without ``total`` the bar shows only activity."""
        columns = (
            _MarkColumn("dots", style="cyan"),
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=14),
            TextColumn("{task.fields[detail]:<35}"),
            TextColumn("[dim]{task.fields[clock]:>6}"),
        )
        with Progress(*columns, console=self._console) as progress:
            step = Step(progress, name, total)
            try:
                yield step
            except BaseException:
                step.finish(_FAILED)
                raise
            step.finish(_DONE)

    def topic(self, check: TopicCheck, title: str) -> None:
        """A table of the partitions that the consumer read."""
        table = Table(box=None, padding=(0, 2), show_footer=True)
        table.add_column("partition", "all", justify="right")
        table.add_column("records", f"{check.records:,}", justify="right")
        table.add_column("without key", f"{check.without_key:,}", justify="right")
        table.add_column("offsets", justify="right")
        table.add_column("bytes", f"{sum(each.bytes for each in check.partitions.values()):,}", justify="right")
        for number, each in check.partitions.items():
            offsets = f"{each.first_offset:,} – {each.last_offset:,}" if each.records else "empty"
            table.add_row(str(number), f"{each.records:,}", f"{each.without_key:,}", offsets, f"{each.bytes:,}")
        self._show(title, table)

    def samples(self, check: TopicCheck) -> None:
        """A table of some records, one of them without a key; values are cut to the line."""
        keyed = [sample for sample in check.samples if sample.key() is not None]
        without_key = [sample for sample in check.samples if sample.key() is None]
        table = Table(box=None, padding=(0, 2))
        table.add_column("partition", justify="right", min_width=9)
        table.add_column("offset", justify="right", min_width=6)
        table.add_column("key", no_wrap=True, min_width=6)
        width = max(_LEAST_VALUE, self._console.width - _BESIDE_VALUE)
        table.add_column("value", no_wrap=True, overflow="ellipsis", width=width)
        for sample in [*keyed[: _SAMPLES - 1], *without_key[:1]]:
            table.add_row(str(sample.partition()), f"{sample.offset():,}", _text(sample.key()), _text(sample.value()))
        self._show(f"Some records of {check.topic}", table)

    def passed(self, *lines: str) -> None:
        text = "\n  ".join(lines)
        self._console.print(f"{_DONE} {escape(text)}")

    def failed(self, text: str) -> None:
        self._console.print(f"{_FAILED} [red]{escape(text)}[/]")

    def note(self, text: str) -> None:
        self._console.print(f"[dim]  {escape(text)}[/]")

    def blank(self) -> None:
        self._console.print()

    def _show(self, title: str, table: Table) -> None:
        self._console.print(f"\n[bold]{escape(title)}[/]")
        self._console.print(table)


@contextmanager
def repeated(action: Callable[[], None], every_s: float) -> Iterator[None]:
    """Calls ``action`` on a thread of its own every ``every_s`` seconds until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every_s):
            action()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _text(data: bytes | None) -> str:
    return "[dim]null[/]" if data is None else escape(data.decode(errors="replace"))
