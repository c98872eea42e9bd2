"""What the demo shows, while it works and when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.table import Table

from spark_kafka_sink.demo.check import TopicCheck

_DONE = "[green]✓[/]"
_FAILED = "[red]✗[/]"
_SAMPLES = 3
_LEAST_VALUE = 20
_BESIDE_VALUE = 9 + 6 + 6 + 4 * 4


class _MarkColumn(SpinnerColumn):
    """A spinner while the step runs, then how it went."""

    def render(self, task: Task) -> RenderableType:
        return task.fields["mark"] or super().render(task)


class Step:
    """A line of the report that is being worked on. Any thread may move it."""

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
        """A few words behind the bar."""
        self._progress.update(self._task, detail=escape(text))

    def stop_clock(self) -> None:
        """``seconds`` is from here on the time the step took."""
        self.seconds = time.monotonic() - self._began

    def finish(self, mark: str) -> None:
        if not self.seconds:
            self.stop_clock()
        self._progress.update(self._task, mark=mark, clock=f"{self.seconds:.1f} s")

    def fill(self) -> None:
        """The bar of a step that counts nothing is full when it is done."""
        if self._progress.tasks[0].total is None:
            self._progress.update(self._task, total=1, completed=1)


class Report:
    """On standard output: in a terminal the bars move, elsewhere each step is one line when it is done."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)

    @contextmanager
    def step(self, name: str, total: int | None = None) -> Iterator[Step]:
        """One line for the time of the block; without ``total`` its bar only says that work goes on."""
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
            step.fill()
            step.finish(_DONE)

    def topic(self, check: TopicCheck, title: str) -> None:
        """Each partition as the consumer found it."""
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
        """Some records, one without a key among them; as much of each value as the line holds."""
        keyed = [sample for sample in check.samples if sample.key is not None]
        without_key = [sample for sample in check.samples if sample.key is None]
        table = Table(box=None, padding=(0, 2))
        table.add_column("partition", justify="right", min_width=9)
        table.add_column("offset", justify="right", min_width=6)
        table.add_column("key", no_wrap=True, min_width=6)
        width = max(_LEAST_VALUE, self._console.width - _BESIDE_VALUE)
        table.add_column("value", no_wrap=True, overflow="ellipsis", width=width)
        for sample in [*keyed[: _SAMPLES - 1], *without_key[:1]]:
            table.add_row(str(sample.partition), f"{sample.offset:,}", _text(sample.key), _text(sample.value))
        self._show(f"Some records of {check.topic}", table)

    def proved(self, text: str) -> None:
        self._console.print(f"{_DONE} {escape(text)}")

    def failed(self, text: str) -> None:
        self._console.print(f"{_FAILED} [red]{escape(text)}[/]")

    def more(self, text: str) -> None:
        """A second line of what was proved."""
        self._console.print(f"  {escape(text)}")

    def note(self, text: str) -> None:
        self._console.print(f"[dim]  {escape(text)}[/]")

    def blank(self) -> None:
        self._console.print()

    def _show(self, title: str, table: Table) -> None:
        self._console.print(f"\n[bold]{escape(title)}[/]")
        self._console.print(table)


def _text(data: bytes | None) -> str:
    return "[dim]null[/]" if data is None else escape(data.decode(errors="replace"))
