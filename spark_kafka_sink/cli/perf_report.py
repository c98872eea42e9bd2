"""What ``perf`` measures, and how it shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_kafka_sink.append.future_record_metadata import FutureRecordMetadata

MB = 1 << 20
SAMPLES = 20_000
PERCENTILES = (0.5, 0.95, 0.99, 0.999)

_PLAIN_LINE_EVERY_S = 5.0

Show = Callable[[int, "Report"], None]


class Report:
    """Latencies of at most ``SAMPLES`` records, evenly spread: a callback for each one would be what is measured.

    ``sending`` is called by the sending thread, its callbacks by the sender thread.
    """

    def __init__(self, records: int) -> None:
        self.sample_every = -(-records // SAMPLES)
        self.started = time.monotonic()
        self.first_error: Exception | None = None
        self._records = records
        self._bytes = 0
        self._latencies: list[float] = []
        self._elapsed = 0.0

    def sent(self, size: int) -> None:
        """So many bytes of values more."""
        self._bytes += size

    def watch(self, future: FutureRecordMetadata) -> None:
        """Measure the record that was just sent."""
        sent_at = time.monotonic()

        def settled(future: FutureRecordMetadata) -> None:
            error = future.exception(0)
            if error is None:
                self._latencies.append(time.monotonic() - sent_at)
            else:
                self.first_error = self.first_error or error

        future.add_done_callback(settled)

    def end(self) -> None:
        """Everything is acknowledged."""
        self._elapsed = time.monotonic() - self.started

    def so_far(self, sent: int) -> str:
        elapsed = max(time.monotonic() - self.started, 1e-3)
        return f"{sent} records sent, {self._rates(sent, elapsed)}"

    def total(self) -> str:
        """The line that ends kafka-producer-perf-test."""
        latencies = sorted(1000.0 * each for each in self._latencies)
        average = sum(latencies) / len(latencies) if latencies else 0.0
        shown = [f"{_percentile(latencies, share):.0f} ms {100 * share:g}th" for share in PERCENTILES]
        return (
            f"{self._records} records sent, {self._rates(self._records, self._elapsed)}, {average:.2f} ms avg latency, "
            f"{_percentile(latencies, 1.0):.2f} ms max latency, {', '.join(shown)}."
        )

    def _rates(self, sent: int, elapsed: float) -> str:
        return f"{sent / elapsed:.1f} records/sec ({self._bytes / elapsed / MB:.2f} MB/sec)"


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@contextmanager
def live_line(records: int) -> Iterator[Show]:
    """Shows the progress on stderr: one live line on a terminal where rich is installed, else a line now and then."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        yield _plain_lines()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _plain_lines()
        return
    columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}% {task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=records)

        def show(sent: int, report: Report) -> None:
            progress.update(task, completed=sent, description=report.so_far(sent))

        yield show


def _plain_lines() -> Show:
    shown_at = time.monotonic()

    def show(sent: int, report: Report) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _PLAIN_LINE_EVERY_S:
            shown_at = time.monotonic()
            print(f"{report.so_far(sent)}.", file=sys.stderr, flush=True)

    return show
