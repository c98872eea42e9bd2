"""The second kind of process: a task writes its rows in a transaction that it leaves prepared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.commit.checksum import RowChecksum
from spark_kafka_sink.commit.decisions import prove, task_action
from spark_kafka_sink.commit.fault_points import reach
from spark_kafka_sink.commit.format import marker_record
from spark_kafka_sink.commit.receipts import TaskName, WriteReceipt, receipts_of
from spark_kafka_sink.commit.values import (
    Action,
    Guise,
    Marker,
    TaskAttempt,
    TaskReport,
    TaskShare,
    Trust,
    WritePlan,
    task_id,
)
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.producer import KafkaProducer, SendReceipt
from spark_kafka_sink.records.arrow import bytes_column
from spark_kafka_sink.records.columns import RecordColumns

OpenProducer = Callable[[ProducerConfig], KafkaProducer]


class TaskTransaction:
    """``append`` rows, ``prepare``, ``close``. One thread.

    Raises ``ExactlyOnceError`` when made, before anything is written, if this batch may not be. A task without rows
    opens no transaction.
    """

    def __init__(self, config: ProducerConfig, plan: WritePlan, name: TaskAttempt, clock: Clock) -> None:
        unit, task = name.unit, name.task
        self.action = task_action(plan, unit, task)
        self.receipt = SendReceipt()
        attempt = name.attempt if unit.guise is Guise.ONCE else None
        self._config = replace(config, transactional_id=task_id(plan.prefix, task, attempt))
        self._plan = plan
        self._unit = unit
        self._task = task
        self._clock = clock
        self._own = SendReceipt()
        self._checksum = RowChecksum()
        self._producer: KafkaProducer | None = None
        self._began_at = 0

    def append(self, topic: str, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None) -> None:
        """Rows of one topic, as for ``KafkaProducer.append_columns``."""
        self._checksum.add(topic, columns, partitions)
        if self.action in (Action.WRITE, Action.REWRITE):
            self._open().append_columns(topic, columns, partitions, self.receipt)
            reach("task in mid-write", self._task)

    def receipts(self) -> tuple[WriteReceipt, ...]:
        """Of the rows so far, when all of them are in the log and their offsets known."""
        if self._producer is None:
            return ()
        self._producer.flush()
        self.receipt.wait(self._config.delivery_timeout_ms)
        name = TaskName(self._unit.query, self._unit.number, self._task)
        return receipts_of(name, self.receipt.deliveries, self._began_at, self._clock.epoch_ms())

    def append_own(self, topic: str, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None = None) -> None:
        """Records of the sink's own, in the transaction of the rows and not counted among them."""
        self._open().append_columns(topic, columns, partitions, self._own)

    def prepare(self) -> TaskReport:
        """Proves a replay, marks the ledger, and leaves the transaction open for commit."""
        rows = self._checksum.rows
        if self.action in (Action.VERIFY, Action.REWRITE):
            prove(self._plan, self._unit, self._task, rows)
        prepared = None
        if self._producer is not None:
            place = self._plan.place
            marker = Marker(self._unit.query, self._unit.number, self._task, rows)
            key, value = marker_record(self._plan.prefix, marker)
            columns = RecordColumns(bytes_column([key]), bytes_column([value]))
            self.append_own(place.topic, columns, np.array([place.partition], np.int32))
            prepared = self._producer.prepare_transaction(self._config.delivery_timeout_ms)
            self.receipt.wait(0)
            self._own.wait(0)
            reach("task prepared", self._task)
        repaired = self.action in (Action.VERIFY, Action.REWRITE)
        compared = self.action is Action.SKIP and self._plan.trust is not Trust.LEDGER
        return TaskReport(
            prefix=self._plan.prefix,
            place=self._plan.place,
            driver=self._plan.driver,
            unit=self._unit,
            action=self.action,
            share=TaskShare(rows, prepared),
            began_at=self._began_at,
            tasks_before=len(self._plan.entries[self._unit.query].tasks) if repaired else 0,
            decided=self._plan.entries[self._unit.query].total if compared else None,
        )

    def close(self) -> None:
        """A prepared transaction stays open; any other is for the next attempt, or Spark's abort, to end."""
        if self._producer is not None:
            self._producer.close(0)

    def _open(self) -> KafkaProducer:
        if self._producer is None:
            self._began_at = self._clock.epoch_ms()
            self._producer = KafkaProducer(self._config)
            self._producer.init_transactions()
            self._producer.begin_transaction()
            reach("task initialised", self._task)
        return self._producer
