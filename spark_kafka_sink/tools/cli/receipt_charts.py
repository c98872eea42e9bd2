"""What queries wrote, summed up from receipts and drawn as lines of text, with rich where it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.task_figures import duration_text, time_spent
from spark_kafka_sink.exactly_once.receipts import WriteReceipt

_MOST_SPANS: Final = 96
_FEWEST_SPANS: Final = 24
_BESIDE_SPANS: Final = 60
_BARS: Final = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH: Final = 24
_MOST_PARTITIONS: Final = 16

_EXACT_BELOW: Final = 100
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_SPAN_MS: Final = (
    *(n * _SECOND // 10 for n in (1, 2, 5)), *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)), *(n * _HOUR for n in (1, 2, 3, 6, 12, 24)),
)  # fmt: skip


class Chart(NamedTuple):
    """One line: what it shows, drawn and in figures."""

    name: str
    drawn: str
    figures: str


def span_count() -> int:
    """The number of columns that the terminal is wide enough for."""
    return max(_FEWEST_SPANS, min(_MOST_SPANS, shutil.get_terminal_size().columns - _BESIDE_SPANS))


def heading(history: QueryHistory) -> str:
    """``orders (query 4f1c…): 45 batches (0 to 44) from 2026-11-22 12:03:11 to 12:03:56 UTC (45 s), 2 min ago; a
    column is 1 s``.
    """
    query = f"{history.name} (query {history.query})" if history.name else f"query {history.query}"
    batches = sorted(history.batches)
    numbers = f"batch {batches[0]}"
    if len(batches) > 1:
        numbers = f"{len(batches)} batches ({batches[0]} to {batches[-1]})"
    began, ended = (datetime.fromtimestamp(each / 1000, UTC) for each in (history.began, history.ended))
    until = f"{ended:%H:%M:%S}" if ended.date() == began.date() else f"{ended:%Y-%m-%d %H:%M:%S}"
    took, ago = _spelt(history.ended - history.began), _spelt(history.now - history.ended)
    return (
        f"{query}: {numbers} from {began:%Y-%m-%d %H:%M:%S} to {until} UTC ({took}), {ago} ago; "
        f"a column is {_spelt(history.span_ms)}"
    )


def charts(history: QueryHistory) -> list[Chart]:
    spans, total = history.spans(), history.total
    rates = [span.rows * 1000 / history.span_ms for span in spans]
    sizes = [span.bytes * 1000 / history.span_ms for span in spans]
    average = total.rows * 1000 / max(history.ended - history.began, 1)
    latencies = [span.latency_avg_ms for span in spans]
    found = [
        Chart("rows/s", bars(rates), f"{total.rows:,.0f} rows, {_rate(average)}/s, at most {_rate(max(rates))}/s"),
        Chart("bytes/s", bars(sizes), f"{_size(total.bytes)}, at most {_size(max(sizes))}/s"),
        Chart("latency", bars(latencies), f"{total.latency_avg_ms:.1f} ms, at most {total.latency_max_ms:.1f} ms"),
        Chart("sent again", bars([span.retries for span in spans]), f"{total.retries:.0f} rows"),
    ]
    if total.throttle_ms:
        found.append(Chart("throttled", bars([s.throttle_ms for s in spans]), duration_text(total.throttle_ms)))
    if total.dead_letters:
        found.append(Chart("dead letters", bars([s.dead_letters for s in spans]), f"{total.dead_letters:.0f} rows"))
    figures = [each.figures for each in history.receipts if each.figures is not None]
    if figures:
        slowest = duration_text(max(each.duration_ms for each in figures))
        found.append(Chart("tasks", "", f"{len(figures)}, the slowest took {slowest}"))
        found.append(Chart("time of tasks", "", ", ".join(time_spent(figures))))
    return found + list(_partitions(history))


def _partitions(history: QueryHistory) -> Iterator[Chart]:
    """The partitions with the most rows, and how uneven each topic is."""
    largest = sorted(history.partitions.items(), key=lambda each: (-each[1], each[0]))[:_MOST_PARTITIONS]
    for partition, rows in largest:
        bar = "█" * max(1, round(_BAR_WIDTH * rows / largest[0][1])) if rows else ""
        yield Chart(str(partition), bar, f"{rows:,} rows, {100 * rows / history.total.rows:.1f} %")
    if len(history.partitions) > len(largest):
        yield Chart("…", "", f"{len(history.partitions) - len(largest)} more partitions")
    for topic, skew in history.skew().items():
        yield Chart(f"skew of {topic}", "", f"{skew:.2f}: largest / mean")


def _rate(rows: float) -> str:
    return f"{rows:,.0f}" if rows >= _EXACT_BELOW else f"{rows:.3g}"


def bars(values: Sequence[float]) -> str:
    """One character per value, by the largest of them; a value above 0 is never blank."""
    most = max(values, default=0.0)
    return "".join(_BARS[0] if value <= 0 else _BARS[max(1, round(8 * value / most))] for value in values)


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def _spelt(ms: float) -> str:
    """``45 s``, ``2.5 min``, ``24 h``."""
    unit, name = next(((unit, name) for unit, name in ((_HOUR, "h"), (_MINUTE, "min")) if ms >= unit), (_SECOND, "s"))
    return f"{ms / unit:.3g} {name}"


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
    """What was written in one span of time. ``latency_ms`` is the sum of all requests' latencies."""

    rows: float = 0.0
    bytes: float = 0.0
    requests: float = 0.0
    latency_ms: float = 0.0
    latency_max_ms: float = 0.0
    retries: float = 0.0
    throttle_ms: float = 0.0
    dead_letters: float = 0.0

    @property
    def latency_avg_ms(self) -> float:
        return self.latency_ms / self.requests if self.requests else 0.0

    def add(self, receipt: WriteReceipt, share: float = 1.0) -> None:
        """Adds this share (0 to 1) of a receipt."""
        self.rows += receipt.count * share
        self.bytes += receipt.bytes * share
        figures = receipt.figures
        if figures is not None:
            self.requests += figures.requests * share
            self.latency_ms += figures.latency_avg_ms * figures.requests * share
            self.latency_max_ms = max(self.latency_max_ms, figures.latency_max_ms)
            self.retries += figures.retries * share
            self.throttle_ms += figures.throttle_ms * share
            self.dead_letters += sum(rows for _, rows in figures.dead_letters) * share


@dataclass(slots=True)
class QueryHistory:
    """What a query wrote, from its first write to its last one.

    ``since``: epoch ms; the part of a write before it is counted as if it were written then. ``now``: a write of an
    executor whose clock is ahead ends then. ``most_spans``: columns of a chart.
    """

    query: str
    since: int
    now: int
    most_spans: int
    name: str = ""
    receipts: list[WriteReceipt] = field(default_factory=list)
    total: Span = field(default_factory=Span)
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    batches: set[int] = field(default_factory=set)
    began: int = field(init=False)
    ended: int = field(init=False)

    def __post_init__(self) -> None:
        self.began, self.ended = self.now, self.since

    @property
    def span_ms(self) -> int:
        """The shortest usual length that needs no more than ``most_spans`` spans."""
        day = _SPAN_MS[-1]
        days = (day * n for n in range(2, (self.ended - self.began) // day + 3))
        return next(each for each in (*_SPAN_MS, *days) if self._last(each) < self.most_spans)

    def add(self, receipt: WriteReceipt) -> None:
        """Adds a receipt that ended since ``since``."""
        self.receipts.append(receipt)
        self.began = min(self.began, self._clipped(receipt.began_at))
        self.ended = max(self.ended, self._clipped(receipt.ended_at))
        self.name = receipt.query_name or self.name
        self.total.add(receipt)
        self.batches.add(receipt.batch)
        if receipt.count:
            partition = TopicPartition(receipt.topic, receipt.partition)
            self.partitions[partition] = self.partitions.get(partition, 0) + receipt.count

    def spans(self) -> list[Span]:
        """A receipt's figures are spread evenly over its time, because nothing tells when a task sent which row. Spans
        begin at multiples of their length, so that a chart that is drawn again keeps its columns.
        """
        length = self.span_ms
        spans = [Span() for _ in range(self._last(length) + 1)]
        start = self.began // length * length
        for each in self.receipts:
            began, ended = self._clipped(each.began_at), self._clipped(each.ended_at)
            for index in range((began - start) // length, (max(ended - 1, began) - start) // length + 1):
                begin = start + index * length
                covered = min(ended, begin + length) - max(began, begin)
                spans[index].add(each, covered / (ended - began) if ended > began else 1.0)
        return spans

    def skew(self) -> dict[str, float]:
        """Topic → rows of its largest partition by the mean of the partitions with rows: 1.0 is even."""
        topics: dict[str, list[int]] = {}
        for partition, rows in self.partitions.items():
            topics.setdefault(partition.topic, []).append(rows)
        return {topic: max(rows) * len(rows) / max(sum(rows), 1) for topic, rows in sorted(topics.items())}

    def _last(self, length: int) -> int:
        """The index of the last span."""
        return max(self.ended - 1, self.began) // length - self.began // length

    def _clipped(self, at: int) -> int:
        return min(max(at, self.since), self.now)


def histories(receipts: Iterable[WriteReceipt], since: int, now: int, most_spans: int) -> list[QueryHistory]:
    """One per query with a write that ended since ``since`` (epoch ms), the last one to write first."""
    found: dict[str, QueryHistory] = {}
    for each in receipts:
        if each.ended_at >= since:
            found.setdefault(each.query, QueryHistory(each.query, since, now, most_spans)).add(each)
    return sorted(found.values(), key=lambda each: -each.ended)
