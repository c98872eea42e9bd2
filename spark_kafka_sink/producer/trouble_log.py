"""``TroubleLog``: the sender's warnings of retries, and of rows that wait for brokers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from spark_kafka_sink.common.cause import Explains
from spark_kafka_sink.common.clock import NEVER
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.repeated_warnings import STALL_MS, RepeatedWarnings
from spark_kafka_sink.common.task_figures import count_noun
from spark_kafka_sink.errors import BrokerError, sanitize
from spark_kafka_sink.network.calls import Calls
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.producer.accumulator import Backlog, RecordAccumulator
from spark_kafka_sink.producer.producer_batch import ProducerBatch

_log = logging.getLogger("spark_kafka_sink.sender")


@dataclass(eq=False)
class TroubleLog:
    """Writes the sender's warnings. Owned by the sender thread. Times are monotonic ms. ``next_at``: when to call
    ``write``. ``acknowledged_at``: time of the last acknowledgement, which the response handler sets.
    """

    config: ProducerConfig
    accumulator: RecordAccumulator
    metadata: Metadata
    client: NetworkClient
    calls: Calls
    sender: Explains
    next_at: float = field(default=0.0, init=False)
    acknowledged_at: float = field(default=-NEVER, init=False)

    def __post_init__(self) -> None:
        self.client.should_warn = self.is_waited_for
        self._warnings = RepeatedWarnings(_log)

    def is_waited_for(self) -> bool:
        """Whether rows or calls wait for a broker. An idle producer also reconnects, for its metadata."""
        return self.accumulator.has_incomplete or self.metadata.waiting_since is not None or self.calls.busy

    def retried(self, batch: ProducerBatch, error: Exception, now: float) -> None:
        """Warns that ``batch`` is sent again because of ``error``. Each kind of error has warnings of its own."""
        kind = error.name if isinstance(error, BrokerError) else type(error).__name__
        text = f"Sending a batch of {batch.partition} again after attempt {batch.attempts}: {error}"
        self._warnings.write(kind, now, text)

    def write(self, now: float) -> None:
        """Warns of rows that have waited too long, for metadata or for an acknowledgement."""
        self.next_at = now + STALL_MS
        if (since := self.metadata.waiting_since) is not None and self._is_due("metadata", since, now):
            why = self.metadata.why_waiting(self.metadata.waiting_for, now, since)
            lacks = "The brokers respond, but their metadata lacks something that the rows need, such as a partition."
            reason = lacks if why is None else sanitize(why.text)
            self._warnings.write(
                "metadata", now, f"Rows have waited for metadata for {(now - since) / 1000:.0f} s: {reason}"
            )
        if (backlog := self.accumulator.backlog()) is not None:
            since = max(self.acknowledged_at, backlog.oldest.lingers_until)
            if self._is_due("rows", since, now):
                self._warnings.write("rows", now, self._rows_stall(backlog, now - since, now))

    def _is_due(self, subject: str, since: float, now: float) -> bool:
        """Whether a line is due. If not, ``next_at`` is at most the time when it will be."""
        due = self._warnings.next_at(subject, since)
        self.next_at = min(self.next_at, due) if now < due else self.next_at
        return now >= due

    def _rows_stall(self, backlog: Backlog, silent_ms: float, now: float) -> str:
        oldest = backlog.oldest
        age = now - oldest.created
        left = max(0.0, self.config.delivery_timeout_ms - age)
        text = (
            f"No acknowledgement for {silent_ms / 1000:.0f} s: {count_noun(backlog.batches, 'batch', 'batches')} "
            f"({backlog.bytes} bytes) wait{'s' if backlog.batches == 1 else ''}. The oldest batch, of "
            f"{oldest.partition}, is {age / 1000:.0f} s old, and delivery.timeout.ms leaves it {left / 1000:.0f} s. "
        )
        why = self.sender.why_waiting(None, now)
        leader = self.metadata.snapshot.nodes.get(self.metadata.snapshot.leader(oldest.partition))
        text += f"It waits for broker {leader}" if why is None else why.text
        last = "" if oldest.last_error is None else str(oldest.last_error)
        return text if last in text else f"{text}; its last error: {last}"
