"""What a task reports of its write, next to counts and offsets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The counts and times of one task's write, of which the producer counted what it sent.

    - ``rows``, ``bytes``: acknowledged; bytes of records before compression.
    - ``compressed_bytes``, ``batches``: record batches as sent, retries included. ``retries``: rows sent again.
    - ``requests``: Produce responses. ``latency_avg_ms``, ``latency_max_ms``: from a request to its response;
      ``throttle_ms``: the sum of what brokers reported.
    - ``began_at``: epoch ms, the executor's clock. ``duration_ms``: from the task's begin to its last acknowledgement.
      The task's thread spends ``encode_ms`` of it on rows into batches (formats, partitions, encoding, compression,
      sending in between), ``memory_wait_ms`` on waits for buffer.memory, ``ack_wait_ms`` on the last acknowledgements,
      and ``other_ms`` on the rest.
    - ``dead_letters``: (reason, rows). ``cut_letters``: those that went without the row's value.

    All zero for a task that wrote nothing.
    """

    began_at: int = 0
    rows: int = 0
    bytes: int = 0
    compressed_bytes: int = 0
    batches: int = 0
    retries: int = 0
    requests: int = 0
    throttle_ms: float = 0.0
    latency_avg_ms: float = 0.0
    latency_max_ms: float = 0.0
    duration_ms: float = 0.0
    encode_ms: float = 0.0
    memory_wait_ms: float = 0.0
    ack_wait_ms: float = 0.0
    dead_letters: tuple[tuple[str, int], ...] = ()
    cut_letters: int = 0

    @property
    def other_ms(self) -> float:
        """The rest: mostly waits for rows from Spark, also for metadata and for a transaction to begin."""
        return max(0.0, self.duration_ms - self.encode_ms - self.memory_wait_ms - self.ack_wait_ms)

    def as_json(self) -> dict[str, Any]:
        """Field → value, times in ms with three digits; ``dead_letters``: reason → rows."""
        values = {name: round(value, 3) if type(value) is float else value for name, value in asdict(self).items()}
        return {**values, "dead_letters": dict(self.dead_letters)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Ignores the fields of later releases; a missing field has its default. Raises ``TypeError``, ``ValueError``,
        ``OverflowError`` or ``AttributeError`` for other values.
        """
        numbers: dict[str, Any] = {
            field.name: finite(float(values[field.name])) if field.type == "float" else int64(int(values[field.name]))
            for field in fields(cls)
            if field.name in values and field.name != "dead_letters"
        }
        letters = {text(reason): int64(int(rows)) for reason, rows in values.get("dead_letters", {}).items()}
        return cls(**numbers, dead_letters=tuple(sorted(letters.items())))


def time_spent(figures: Sequence[TaskFigures]) -> list[str]:
    """The shares of the tasks' time, such as ``62 % encoding``. Shares below half a percent are left out."""
    total_ms = sum(figure.duration_ms for figure in figures)
    kinds = {
        "encoding": sum(figure.encode_ms for figure in figures),
        "waiting for buffer.memory": sum(figure.memory_wait_ms for figure in figures),
        "waiting for acknowledgements": sum(figure.ack_wait_ms for figure in figures),
        "waiting for rows": sum(figure.other_ms for figure in figures),
    }
    percents = {kind: round(100 * spent_ms / max(total_ms, 1.0)) for kind, spent_ms in kinds.items()}
    return [f"{percent} % {kind}" for kind, percent in percents.items() if percent]


def duration_text(ms: float) -> str:
    """``300 ms`` or ``2.1 s``."""
    return f"{ms:.0f} ms" if round(ms) < 1000 else f"{ms / 1000:.1f} s"


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """``1 row`` or ``2 rows``."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def int64(value: int) -> int:
    """Raises ``ValueError`` if the number has more than 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number has more than 64 bits")
    return value


def text(value: str) -> str:
    """Raises ``ValueError`` for a lone surrogate, which no metric's label may have."""
    value.encode()
    return value


def finite(value: float) -> float:
    """Raises ``ValueError`` for infinity and NaN."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return value


NO_FIGURES: Final = TaskFigures()
