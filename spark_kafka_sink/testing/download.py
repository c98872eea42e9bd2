"""How far a download is, and what shows it."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from rich.progress import Progress


class Fetched(NamedTuple):
    """How far a fetch is. ``file``: the last one begun, "" while Ivy still looks up which files there are."""

    file: str
    begun: int
    wanted: int
    bytes: int


class FetchWatcher(Protocol):
    """Is told several times a second how far a fetch is, on the thread that fetches."""

    def __call__(self, so_far: Fetched, /) -> object: ...


class DownloadShown:
    """A watcher that shows on stderr, on a terminal with rich, a bar, and at the end how much has arrived.

    ``about_mb``: the expected size, 0 if unknown.
    """

    def __init__(self, about_mb: int) -> None:
        self._about_mb = about_mb
        self._bar: Progress | None = None
        self._last: Fetched | None = None

    def __enter__(self) -> Self:
        return self

    def __call__(self, so_far: Fetched) -> None:
        if self._last is None and sys.stderr.isatty():
            self._bar = _bar(self._about_mb * 1_000_000 or None)
        self._last = so_far
        if self._bar is not None:
            doing = f"{so_far.file}, file {so_far.begun} of {so_far.wanted}"
            if not so_far.file:
                doing = f"looking up the files, {so_far.wanted} so far"
            self._bar.update(self._bar.task_ids[0], completed=so_far.bytes, description=doing)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._last is not None and error is None:
            files = "1 file" if self._last.begun == 1 else f"{self._last.begun} files"
            sys.stderr.write(f"Fetched {files}, {self._last.bytes / 1e6:.1f} MB\n")


def _bar(total: int | None) -> Progress | None:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    except ImportError:
        return None
    columns = (BarColumn(bar_width=24), DownloadColumn(), TextColumn("{task.description}", markup=False))
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task("", total=total)
    bar.start()
    return bar
