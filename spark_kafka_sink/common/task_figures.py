"""The figures that a task reports of its write, besides counts and offsets. ``FIGURES`` is their table.

The producer's counters fill the figures. The driver's line, receipts, the exporter and the documentation are made from
the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self


class Figure(NamedTuple):
    """A row of the table: the meaning of a field or property of ``TaskFigures``, and where it is shown.

    - ``doc``: its text on the page Operations and in the exporter.
    - ``counter``: the producer's counter whose growth is the figure. ``TaskMeter`` measures figures without a counter.
    - ``metric``: the exporter's name, without ``_total``. A figure in ms is exported in seconds. ``label``: the name of
      the metric's further label. ``is_largest``: the metric is a gauge of the last batch's tasks, otherwise a sum.
    - ``line``: the words for the sum in the driver's line. ``{s}`` and ``{its}`` become ``s`` and ``their`` in the
      plural.
    - ``part``: the exporter's name for a part of the task's time, whose name in the driver's line is ``line``.
    """

    doc: str
    counter: str = ""
    metric: str = ""
    label: str = ""
    is_largest: bool = False
    line: str = ""
    part: str = ""


_ROW: Final = "figure"


def _figure(default: object, doc: str, **row: Any) -> Any:
    return field(default=default, metadata={_ROW: Figure(doc, **row)})


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The counts and times of one task's write; all zero for a task that wrote nothing. Times are in ms."""

    # fmt: off
    began_at: int = _figure(0, "When the task began, in epoch ms by the executor's clock.")
    rows: int = _figure(0, "Rows acknowledged.")
    bytes: int = _figure(0, "Bytes of these rows as records, before compression.")
    compressed_bytes: int = _figure(0, "Bytes of record batches as sent, compressed, retries included.",
        counter="bytes", metric="sent_bytes")
    batches: int = _figure(0, "Record batches as sent, retries included.", counter="batches", metric="record_batches")
    retries: int = _figure(0, "Rows sent again.", counter="retries", metric="retried_rows",
        line="{} row{s} sent again")
    requests: int = _figure(0, "Produce requests that brokers responded to.", counter="responses", metric="requests")
    throttle_ms: float = _figure(0.0, "Throttling that brokers reported (quotas).", counter="throttle_ms",
        metric="throttle_seconds", line="throttled {}")
    latency_avg_ms: float = _figure(0.0, "Time from a Produce request to its response, on average.")
    latency_max_ms: float = _figure(0.0, "Longest time from a Produce request to its response.",
        metric="request_latency_max_seconds", is_largest=True)
    duration_ms: float = _figure(0.0, "Time from the task's begin to its last acknowledgement.",
        metric="slowest_task_seconds", is_largest=True)
    encode_ms: float = _figure(0.0, part="encoding", line="encoding",
        doc="turns rows into batches (formats, partitions, encoding, compression), and sends some of them")
    memory_wait_ms: float = _figure(0.0, part="memory", line="waiting for buffer.memory",
        doc="waits until the brokers, which are slower than the task, acknowledge earlier batches")
    ack_wait_ms: float = _figure(0.0, part="acknowledgements", line="waiting for acknowledgements",
        doc="waits for the last batches, after its last row")
    dead_letters: tuple[tuple[str, int], ...] = _figure((), "Rows that became dead letters, by reason.",
        metric="dead_letters", label="reason", line="{} dead letter{s}")
    cut_letters: int = _figure(0, "Dead letters without the row's value.", line="{} without {its} value")
    # fmt: on

    @property
    def other_ms(self) -> float:
        """The rest of the task's time: mostly waits for rows from Spark."""
        return max(0.0, self.duration_ms - self.encode_ms - self.memory_wait_ms - self.ack_wait_ms)

    @property
    def latency_ms(self) -> float:
        """The sum over all requests' latencies, ms."""
        return self.latency_avg_ms * self.requests

    def by_label(self, name: str) -> Sequence[tuple[str, float]]:
        """The values of a figure by ``part`` or ``label``; "" stands for none."""
        value = getattr(self, name)
        return value if isinstance(value, tuple) else ((FIGURES[name].part, value),)

    def as_json(self) -> dict[str, Any]:
        """Field → value, times in ms with three digits; ``dead_letters``: reason → rows."""
        values = {name: round(value, 3) if type(value) is float else value for name, value in asdict(self).items()}
        return {**values, "dead_letters": dict(self.dead_letters)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """The figures of this JSON. Ignores the fields of later releases; a missing field has its default. Raises
        ``TypeError``, ``ValueError``, ``OverflowError`` or ``AttributeError`` for other values.
        """
        numbers: dict[str, Any] = {
            each.name: finite(float(values[each.name])) if each.type == "float" else int64(int(values[each.name]))
            for each in fields(cls)
            if each.name in values and each.name != "dead_letters"
        }
        letters = {text(reason): int64(int(rows)) for reason, rows in values.get("dead_letters", {}).items()}
        return cls(**numbers, dead_letters=tuple(sorted(letters.items())))


FIGURES: Final[Mapping[str, Figure]] = MappingProxyType({
    **{each.name: each.metadata[_ROW] for each in fields(TaskFigures)},
    "other_ms": Figure(
        "waits for Spark to compute rows, for metadata, for the start of a transaction, or because of a rate limit",
        part="rows", line="waiting for rows",
    ),
    "latency_ms": Figure(
        "Time from a Produce request to its response, summed up: divide by requests.", metric="request_latency_seconds"
    ),
})  # fmt: skip
"""The table: the fields of ``TaskFigures``, and the properties that are shown."""


def performance(figures: Sequence[TaskFigures], now_ms: int) -> str:
    """``in 2.1 s (160369 rows/s, slowest task 1.9 s, 12 rows sent again; tasks: 60 % encoding, …)``: the end of the
    driver's line. Sums of zero and parts below half a percent are left out. ``now_ms``: epoch ms.
    """
    slowest_ms = max(each.duration_ms for each in figures)
    took_ms = max(now_ms - min(each.began_at for each in figures), slowest_ms)  # clocks of executors may be ahead
    rate = sum(each.rows for each in figures) * 1000 / max(took_ms, 1)
    total_ms = max(sum(each.duration_ms for each in figures), 1.0)
    of_rows, of_time = [f"{rate:.0f} rows/s", f"slowest task {duration_text(slowest_ms)}"], []
    for name, row in FIGURES.items():
        total = sum(value for each in figures for _, value in each.by_label(name))
        if row.part and (percent := round(100 * total / total_ms)):
            of_time.append(f"{percent} % {row.line}")
        elif total and row.line and not row.part:
            s, its = ("s", "their") if total > 1 else ("", "its")
            of_rows.append(row.line.format(duration_text(total) if is_time(name) else total, s=s, its=its))
    return f"in {duration_text(took_ms)} ({', '.join(of_rows)}; tasks: {', '.join(of_time)})"


def is_time(name: str) -> bool:
    """Whether a figure is a duration in ms."""
    return name.endswith("_ms")


def duration_text(ms: float) -> str:
    """``300 ms`` or ``2.1 s``."""
    return f"{ms:.0f} ms" if round(ms) < 1000 else f"{ms / 1000:.1f} s"


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """``1 row`` or ``2 rows``."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def int64(value: int) -> int:
    """The number. Raises ``ValueError`` if it has more than 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number has more than 64 bits")
    return value


def text(value: str) -> str:
    """The text. Raises ``ValueError`` for a lone surrogate, which no metric's label may have."""
    value.encode()
    return value


def finite(value: float) -> float:
    """The number. Raises ``ValueError`` for infinity and NaN."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value


NO_FIGURES: Final = TaskFigures()
