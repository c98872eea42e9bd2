"""``TroubleLog``: the sender's log lines while rows or calls wait for brokers: retries, lost connections, stalls."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.network.calls import STALL_MS, Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator import Backlog, RecordAccumulator
from spark_kafka_sink.producer.producer_batch import ProducerBatch

_log = logging.getLogger("spark_kafka_sink.sender")

SUM_MS: Final = 10_000.0
"""The first retry is logged at once, those of this time after it as one line."""

_MOST_ERRORS: Final = 5


@dataclass(eq=False)
class TroubleLog:
    """Owned by the sender thread. Times are monotonic ms.

    ``next_at``: when to call ``write``. ``unwritten``: there is something to sum up then. ``acknowledged_at``: of the
    last acknowledgement, which the response handler notes.
    """

    config: ProducerConfig
    accumulator: RecordAccumulator
    metadata: Metadata
    client: NetworkClient
    calls: Calls
    next_at: float = field(default=0.0, init=False)
    unwritten: bool = field(default=False, init=False)
    acknowledged_at: float = field(default=-NEVER, init=False)

    def __post_init__(self) -> None:
        self.client.matters = self.is_waited_for
        self._retries: Counter[str] = Counter()
        self._summing_since: float | None = None  # None: the next retry is logged at once
        self._written_at = 0.0
        self._warned_at: dict[str, float] = {}  # by what waits

    def is_waited_for(self) -> bool:
        """Whether rows or calls wait for a broker. An idle producer reconnects, too, for its metadata."""
        return self.accumulator.has_incomplete or self.metadata.waiting_since is not None or self.calls.busy

    def retried(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """``batch`` is sent again because of ``error``."""
        if self._summing_since is None:
            _log.warning("Sending a batch of %s again after attempt %d: %s", batch.partition, batch.attempts, error)
            self._summing_since = now
        else:
            self._retries[error.name if isinstance(error, BrokerError) else str(error)] += 1
            self.unwritten = True
        self.next_at = min(self.next_at, self._summing_since + SUM_MS)

    def write(self, now: float) -> None:
        """Log what is due: warnings of what waits, each once in ``STALL_MS``, and the sum of retries."""
        metadata_since, backlog = self.metadata.waiting_since, self.accumulator.backlog()
        waiting: list[tuple[str, float, Callable[[float], str]]] = []
        if metadata_since is not None:
            stall = "Rows wait for metadata for {:.0f} s: {}"
            waiting.append(("metadata", metadata_since, lambda ms: stall.format(ms / 1000, self.metadata.missing(now))))
        if backlog is not None:
            since = max(self.acknowledged_at, backlog.oldest.lingers_until)
            waiting.append(("rows", since, lambda ms: self._rows_stall(backlog, ms, now)))
        due = now + STALL_MS
        for what, since, text in waiting:
            if now >= max(since, self._warned_at.get(what, -NEVER)) + STALL_MS:
                self._warned_at[what] = now
                _log.warning("%s", text(now - since))
            due = min(due, max(since, self._warned_at.get(what, -NEVER)) + STALL_MS)
        calls_since = self.calls.waiting_since
        self._sum_up(now, min([*(since for _, since, _ in waiting), NEVER if calls_since is None else calls_since]))
        self.next_at = due if self._summing_since is None else min(due, self._summing_since + SUM_MS)

    def _sum_up(self, now: float, waiting_since: float) -> None:
        since = self._written_at if self._summing_since is None else self._summing_since
        if now < since + SUM_MS:
            return
        self._written_at, self._summing_since = now, None
        failures = self.client.take_repeated_failures()
        lines = []
        if self._retries:
            lines.append(
                f"{count_noun(self._retries.total(), 'batch', 'batches')} sent again ({_by_error(self._retries)})"
            )
        if failures:
            lines.append(f"{sum(failures.values())} more connection failures ({_by_error(failures)})")
        if lines:
            # What waits for longer has a warning of its own, with the connection's error.
            unsaid = self.is_waited_for() and now < waiting_since + STALL_MS / 2
            level = logging.WARNING if self._retries or unsaid else logging.DEBUG
            _log.log(level, "In the last %.0f s: %s", (now - since) / 1000, "; ".join(lines))
            self._retries.clear()
            self.unwritten = False
            self._summing_since = now

    def _rows_stall(self, backlog: Backlog, silent_ms: float, now: float) -> str:
        oldest = backlog.oldest
        age = now - oldest.created
        left = max(0.0, self.config.delivery_timeout_ms - age)
        text = (
            f"No acknowledgement for {silent_ms / 1000:.0f} s: {count_noun(backlog.batches, 'batch', 'batches')} "
            f"({backlog.bytes} bytes) wait{'s' if backlog.batches == 1 else ''}. The oldest, of {oldest.partition}, is "
            f"{age / 1000:.0f} s old; delivery.timeout.ms leaves it {left / 1000:.0f} s. {self._waits_for(oldest, now)}"
        )
        last = "" if oldest.last_error is None else str(oldest.last_error)
        return text if last in text else f"{text}; its last error: {last}"

    def _waits_for(self, batch: ProducerBatch, now: float) -> str:
        snapshot = self.metadata.snapshot
        obstacle = self.metadata.leader_obstacle(batch.partition, now)
        return obstacle or f"It waits for broker {snapshot.nodes.get(snapshot.leader(batch.partition))}"


def _by_error(counts: Mapping[str, int]) -> str:
    """``NOT_ENOUGH_REPLICAS: 500, …``, the most frequent first."""
    ranked = Counter(counts).most_common()
    shown = ", ".join(f"{error}: {count}" for error, count in ranked[:_MOST_ERRORS])
    return shown if len(ranked) <= _MOST_ERRORS else f"{shown}, and {len(ranked) - _MOST_ERRORS} other errors"
