"""Numbered rows through a producer, and what was reported of each."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_sink import KafkaProducer, SendReceipt
from spark_kafka_sink.producer.future_record_metadata import FutureRecordMetadata
from spark_kafka_sink.producer.record import ProducerRecord
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.promises import Fault, Log
from tests.faults.settings import Setting
from tests.support.waiting import DEADLINE_S

PORTION = 10
FLUSH_MS = 1_000 * DEADLINE_S
_PADDING = b" " * 60


class Workload:
    """Writes portions of ten rows with ``setting``; rows are numbered from 0, their value begins with the number."""

    def __init__(self, producer: KafkaProducer, topic: str, setting: Setting) -> None:
        self.written = 0
        self._producer = producer
        self._topic = topic
        self._setting = setting
        self._futures: dict[int, FutureRecordMetadata] = {}
        self._receipts: dict[range, SendReceipt] = {}

    def write(self, portions: int = 4) -> None:
        for _ in range(portions):
            rows = range(self.written, self.written + PORTION)
            self.written += PORTION
            keys = [b"key-%d" % (row % 7) if self._setting.keyed else None for row in rows]
            values = [b"%06d" % row + _PADDING for row in rows]
            if self._setting.send:
                for row, key, value in zip(rows, keys, values, strict=True):
                    self._futures[row] = self._producer.send(ProducerRecord(self._topic, value, key))
            else:
                self._append(rows, keys, values)

    def go_through(self, fault: Fault, where: object, warm: bool = True) -> dict[int, Exception]:
        """Rows before the fault (``warm``), in it and after it; those that were reported as failed. Memory is free."""
        if warm:
            self.write()
            self._producer.flush(FLUSH_MS)
        self.before = self.written
        fault.strike(where, self.write)
        self.write()
        self._producer.flush(FLUSH_MS)
        assert self._producer._core.accumulator.pool.available == self._producer.config.buffer_memory
        return self.failed()

    def _append(self, rows: range, keys: list[bytes | None], values: list[bytes]) -> None:
        receipt = self._receipts[rows] = SendReceipt()
        key_column = pa.array(keys, pa.binary()) if self._setting.keyed else None
        columns = RecordColumns(key_column, pa.array(values, pa.binary()))
        self._producer._core.append_columns(self._topic, columns, None, receipt)

    def failed(self) -> dict[int, Exception]:
        """Rows that were reported as failed, with the reason; everything must be settled."""
        failed: dict[int, Exception] = {}
        for row, future in self._futures.items():
            error = future.exception(0)
            if error is not None:
                failed[row] = error
        for rows, receipt in self._receipts.items():
            if receipt.error is not None:
                failed.update(dict.fromkeys(rows, receipt.error))
            else:
                receipt.wait(0)
                assert sum(delivery.count for delivery in receipt.deliveries.values()) == len(rows)
        return failed

    def check_offsets(self, log: Log, gone: frozenset[int] = frozenset()) -> None:
        """Each record is where its future says it is."""
        for row, future in self._futures.items():
            if row not in gone and future.exception(0) is None:
                place = future.result(0)
                if place.offset >= 0:
                    assert log[place.partition][place.offset] == row
