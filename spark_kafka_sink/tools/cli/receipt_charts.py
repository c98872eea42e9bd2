"""Draws the last hours of queries as lines of text, with rich where it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from spark_kafka_sink.spark.receipts.history import QueryHistory

_SPANS: Final = (96, 48, 24)
_BESIDE_SPANS: Final = 55
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 24
_MOST_PARTITIONS: Final = 16


class Chart(NamedTuple):
    """A line: what it shows, drawn, and in figures."""

    name: str
    drawn: str
    figures: str


def span_count() -> int:
    """The number of columns that the terminal is wide enough for."""
    width = shutil.get_terminal_size().columns
    return next((spans for spans in _SPANS if spans + _BESIDE_SPANS <= width), _SPANS[-1])


def heading(history: QueryHistory) -> str:
    """``query 4f1c…: batch 88 at 2026-11-22 12:03:11 UTC; 24 h, a column is 30 min``."""
    last = datetime.fromtimestamp(history.last_write / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    hours = (history.ended - history.began) / 3_600_000
    column = history.span_seconds
    width = f"{column / 60:.3g} min" if column >= 60 else f"{column:.3g} s"
    return f"query {history.query}: last wrote batch {history.last_batch} at {last}; {hours:g} h, a column is {width}"


def charts(history: QueryHistory) -> list[Chart]:
    spans, total, seconds = history.spans, history.total, history.span_seconds
    rates = [span.rows / seconds for span in spans]
    latencies = [span.latency_avg_ms for span in spans]
    found = [
        Chart("rows/s", bars(rates), f"{total.rows} rows, max {max(rates):.4g}/s"),
        Chart("latency", bars(latencies), f"{total.latency_avg_ms:.1f} ms, max {total.latency_max_ms:.1f} ms"),
        Chart("sent again", bars([span.retries for span in spans]), f"{total.retries} rows"),
    ]
    if total.throttle_ms:
        found.append(Chart("throttled", bars([s.throttle_ms for s in spans]), f"{total.throttle_ms / 1000:.1f} s"))
    if total.dead_letters:
        found.append(Chart("dead letters", bars([s.dead_letters for s in spans]), f"{total.dead_letters} rows"))
    return found + list(_partitions(history))


def _partitions(history: QueryHistory) -> Iterator[Chart]:
    """The partitions with the most rows, and how uneven each topic is."""
    largest = sorted(history.partitions.items(), key=lambda each: (-each[1], each[0]))[:_MOST_PARTITIONS]
    for partition, rows in largest:
        bar = "█" * max(1, round(_BAR_WIDTH * rows / largest[0][1])) if rows else ""
        yield Chart(str(partition), bar, f"{rows} rows, {100 * rows / history.total.rows:.1f} %")
    if len(history.partitions) > len(largest):
        yield Chart("…", "", f"{len(history.partitions) - len(largest)} more partitions")
    for topic, skew in history.skew().items():
        yield Chart(f"skew of {topic}", "", f"{skew:.2f}: largest / mean")


def bars(values: Sequence[float]) -> str:
    """One character per value, by the largest of them; a value above 0 is never blank."""
    most = max(values, default=0.0)
    return "".join(_BARS[0] if value <= 0 else _BARS[max(1, round(8 * value / most))] for value in values)


def drawer() -> Callable[[Sequence[QueryHistory]], None]:
    """Prints histories: with rich's tables and colours, or without rich as plain lines."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return _print_plainly
    console = Console(highlight=False)

    def draw(histories: Sequence[QueryHistory]) -> None:
        for history in histories:
            table = Table(box=None, show_header=False, padding=(0, 1), title_justify="left", title_style="bold")
            table.add_column(style="dim", no_wrap=True)
            table.add_column(style="cyan", no_wrap=True)
            table.add_column()
            for chart in charts(history):
                table.add_row(*chart)
            console.print(heading(history), style="bold", markup=False, soft_wrap=True)
            console.print(table)

    return draw


def _print_plainly(histories: Sequence[QueryHistory]) -> None:
    for history in histories:
        rows = charts(history)
        name = max(len(row.name) for row in rows)
        drawn = max(len(row.drawn) for row in rows)
        print(heading(history))
        for row in rows:
            print(f"  {row.name:<{name}}  {row.drawn:<{drawn}}  {row.figures}".rstrip())
