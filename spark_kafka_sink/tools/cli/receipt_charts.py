"""The last hours of queries, summed up from receipts and drawn as lines of text, with rich where it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

_SPANS: Final = (96, 48, 24)
_BESIDE_SPANS: Final = 55
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 24
_MOST_PARTITIONS: Final = 16


class Chart(NamedTuple):
    """One line: what it shows, drawn and in figures."""

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


@dataclass(slots=True)
class Span:
    """The writes that ended in one span of time. ``latency_ms`` is the sum of all requests' latencies."""

    rows: int = 0
    requests: int = 0
    latency_ms: float = 0.0
    latency_max_ms: float = 0.0
    retries: int = 0
    throttle_ms: float = 0.0
    dead_letters: int = 0

    @property
    def latency_avg_ms(self) -> float:
        return self.latency_ms / self.requests if self.requests else 0.0

    def add(self, receipt: WriteReceipt) -> None:
        self.rows += receipt.count
        figures = receipt.figures
        if figures is not None:
            self.requests += figures.requests
            self.latency_ms += figures.latency_avg_ms * figures.requests
            self.latency_max_ms = max(self.latency_max_ms, figures.latency_max_ms)
            self.retries += figures.retries
            self.throttle_ms += figures.throttle_ms
            self.dead_letters += sum(rows for _, rows in figures.dead_letters)


@dataclass(slots=True)
class QueryHistory:
    """What a query wrote, in spans of equal length from ``began`` to ``ended`` (epoch ms)."""

    query: str
    began: int
    ended: int
    spans: list[Span]
    total: Span = field(default_factory=Span)
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    last_batch: int = -1
    last_write: int = 0

    @property
    def span_seconds(self) -> float:
        return (self.ended - self.began) / len(self.spans) / 1000.0

    def add(self, receipt: WriteReceipt) -> None:
        """Adds a receipt that ended within the history."""
        index = (receipt.ended_at - self.began) * len(self.spans) // max(self.ended - self.began, 1)
        self.spans[min(index, len(self.spans) - 1)].add(receipt)
        self.total.add(receipt)
        if receipt.count:
            partition = TopicPartition(receipt.topic, receipt.partition)
            self.partitions[partition] = self.partitions.get(partition, 0) + receipt.count
        self.last_batch = max(self.last_batch, receipt.batch)
        self.last_write = max(self.last_write, receipt.ended_at)

    def skew(self) -> dict[str, float]:
        """Topic → rows of its largest partition by the mean of the partitions with rows: 1.0 is even."""
        topics: dict[str, list[int]] = {}
        for partition, rows in self.partitions.items():
            topics.setdefault(partition.topic, []).append(rows)
        return {topic: max(rows) * len(rows) / max(sum(rows), 1) for topic, rows in sorted(topics.items())}


def histories(receipts: Iterable[WriteReceipt], began: int, ended: int, spans: int) -> list[QueryHistory]:
    """One per query with a write that ended since ``began`` (epoch ms), the last one to write first. ``ended``: now; a
    write of an executor whose clock is ahead is in the last span.
    """
    found: dict[str, QueryHistory] = {}
    for each in receipts:
        if each.ended_at >= began:
            if each.query not in found:
                found[each.query] = QueryHistory(each.query, began, ended, [Span() for _ in range(spans)])
            found[each.query].add(each)
    return sorted(found.values(), key=lambda each: -each.last_write)
