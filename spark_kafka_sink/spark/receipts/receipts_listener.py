"""``ReceiptsListener``: Spark's progress of each micro-batch together with the sink's receipts of it.

Spark shows no metrics of a Python sink but ``numOutputRows``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.task_figures import TaskFigures
from spark_kafka_sink.common.waiting import sleep
from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.exactly_once.receipts import WriteReceipt, read_lines
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.receipts.receipt_reader import TopicReceipts

_log = logging.getLogger("spark_kafka_sink.receipts")

_PATIENCE_MS: Final = 2_000.0
_PAUSE_MS: Final = 20.0
_MOST_HELD: Final = 1_000


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A micro-batch with its ``receipts``, one per task and partition. There are none if they could not be read or it
    had no rows.
    """

    progress: StreamingQueryProgress
    receipts: tuple[WriteReceipt, ...]

    @property
    def rows(self) -> int:
        return sum(each.count for each in self.receipts)

    @property
    def tasks(self) -> dict[int, TaskFigures]:
        """Task → what it counted."""
        return {each.task: each.figures for each in self.receipts if each.figures is not None}


class BatchHandler(Protocol):
    """Takes each micro-batch, on the thread that Spark runs listeners on."""

    def __call__(self, batch: WrittenBatch, /) -> object: ...


class ReceiptsListener(StreamingQueryListener):
    """``spark.streams.addListener(ReceiptsListener(handler, options))`` on the driver.

    ``options``: those of the write, with ``receiptsPath`` or ``receiptsTopic``; several queries may share them. Only
    micro-batches that are written after it was made have receipts from a topic. Raises ``ConfigError``.
    """

    def __init__(self, handler: BatchHandler, options: Mapping[str, str], clock: Clock | None = None) -> None:
        parsed = SinkOptions.parse(options)
        if not parsed.wants_receipts:
            raise ConfigError(["ReceiptsListener needs receiptsPath or receiptsTopic, as the write has it."])
        self._handler = handler
        self._clock = clock or SystemClock()
        self._path = parsed.receipts_path
        self._topic = None
        if self._path is None and parsed.receipts_topic is not None:
            since = self._clock.epoch_ms()
            self._topic = TopicReceipts(parsed.producer, parsed.receipts_topic, self._clock, since)
        self._held: dict[tuple[str, int], list[WriteReceipt]] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        progress = event.progress
        receipts: tuple[WriteReceipt, ...] = ()
        if progress.sink.numOutputRows:
            try:
                receipts = self._receipts(str(progress.id), progress.batchId, progress.sink.numOutputRows)
            except KafkaError as error:
                _log.warning("The receipts of micro-batch %d cannot be read: %s", progress.batchId, error)
        self._handler(WrittenBatch(progress, receipts))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        """Nothing to do."""

    def close(self) -> None:
        """Closes the connections. Call it after ``spark.streams.removeListener``."""
        if self._topic is not None:
            self._topic.close()

    def _receipts(self, query: str, batch: int, rows: int) -> tuple[WriteReceipt, ...]:
        """Waits for the receipts of all rows, because a commit becomes visible some ms after brokers have acknowledged
        it.
        """
        deadline = self._clock.now() + _PATIENCE_MS
        while True:
            found = self._read(query, batch)
            if sum(map(_rows_told, found)) >= rows or self._clock.now() >= deadline:
                self._held.pop((query, batch), None)
                return found
            sleep(_PAUSE_MS)

    def _read(self, query: str, batch: int) -> tuple[WriteReceipt, ...]:
        if self._path is not None:
            return read_lines(self._path, query, batch)
        assert self._topic is not None
        for receipt in self._topic.read():
            self._held.setdefault((receipt.query, receipt.batch), []).append(receipt)
        while len(self._held) > _MOST_HELD:  # of queries that this listener is not told of
            del self._held[next(iter(self._held))]
        return tuple(self._held.get((query, batch), ()))


def _rows_told(receipt: WriteReceipt) -> int:
    """The number of Spark's rows that a receipt accounts for. ``count`` does not include dead letters."""
    letters = () if receipt.figures is None else receipt.figures.dead_letters
    return receipt.count + sum(rows for _, rows in letters)
