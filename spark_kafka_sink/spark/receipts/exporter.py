"""``Exporter``: reads receipts and keeps the samples that Prometheus scrapes and OTLP sends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.spark.receipts.receipt_reader import ReceiptReader
from spark_kafka_sink.spark.receipts.totals import ERRORS, FOREIGN, LAST_READ, RECEIPTS, Sample, Totals

_log = logging.getLogger("spark_kafka_sink.exporter")

MOST_SERIES: Final = 10_000


class Exporter:
    """One thread calls ``read_all``, then ``read`` again and again. Any thread reads ``samples``, a tuple that is
    replaced as a whole.
    """

    def __init__(self, reader: ReceiptReader, clock: Clock, most_series: int = MOST_SERIES) -> None:
        self.samples: Sequence[Sample] = ()
        self._reader = reader
        self._clock = clock
        self._totals = Totals(most_series)
        self._of_queries: tuple[Sample, ...] = ()
        self._began = clock.epoch_ms()
        self._receipts = self._errors = 0
        self._last_read = 0.0

    def read_all(self) -> None:
        """What is there. Raises ``KafkaError``."""
        before = self._receipts
        try:
            for receipt in self._reader.read():
                self._totals.add(receipt)
                self._receipts += 1
            self._last_read = self._clock.epoch_ms() / 1000
        finally:
            if self._receipts > before:
                self._of_queries = tuple(self._totals.samples())
            self._publish()

    def read(self) -> None:
        """What is new. An error is logged and counted: the next call tries again."""
        try:
            self.read_all()
        except KafkaError as error:
            _log.warning("Receipts cannot be read: %s", error)
            self._errors += 1
            self._publish()

    def _publish(self) -> None:
        own = {
            RECEIPTS: self._receipts,
            FOREIGN: self._reader.foreign.count,
            ERRORS: self._errors,
            LAST_READ: self._last_read,
        }
        self.samples = (*self._of_queries, *(Sample(metric, {}, value, self._began) for metric, value in own.items()))
