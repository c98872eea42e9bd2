"""The second kind of process: a task writes its rows in a transaction that it leaves prepared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.exactly_once import steps
from spark_kafka_sink.exactly_once.checksum import RowChecksum
from spark_kafka_sink.exactly_once.decisions import prove, task_action
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import marker_record
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipts_of
from spark_kafka_sink.exactly_once.values import (
    LedgerStart,
    Marker,
    RecoveryMode,
    TaskAction,
    TaskAttempt,
    TaskReport,
    TaskShare,
    WriteKind,
    WritePlan,
    task_id,
)
from spark_kafka_sink.model import TopicPartition
from spark_kafka_sink.producer import KafkaProducer, SendReceipt
from spark_kafka_sink.records.columns import RecordColumns, bytes_column
from spark_kafka_sink.transactions.values import END_TXN_V2

Lease = Callable[[ProducerConfig], AbstractContextManager[KafkaProducer]]
"""Gives a living producer for the time of a block; one whose block fails must be closed."""

_TRANSACTIONAL: Final = "any task's"
"""transactional.id that makes a producer transactional; each task initialises it as its own."""

_ABORT_MS: Final = 5_000.0
"""How long a task that fails waits for the end of its transaction: it has something to tell."""


@contextmanager
def opened(config: ProducerConfig) -> Iterator[KafkaProducer]:
    """A producer of its own. A prepared transaction stays open."""
    producer = KafkaProducer(config)
    try:
        yield producer
    finally:
        producer.close(0)


class TaskTransaction:
    """In a ``with`` block: ``append`` rows, then ``prepare``. One thread.

    A block that fails aborts the transaction before it raises, under transactions version 2. Version 1 leaves it open
    to whoever fences it: this one's EndTxn would leave the epoch as it is, so that rows that arrive late would be
    committed with the successor's; its InitProducerId would abort what a successor has open. A task without rows opens
    none. Raises ``ExactlyOnceError`` when made, before anything is written, if this batch may not be.
    """

    def __init__(
        self, config: ProducerConfig, plan: WritePlan, name: TaskAttempt, clock: Clock, lease: Lease = opened
    ) -> None:
        write_id, task = name.write_id, name.task
        self.action = task_action(plan, write_id, task)
        self.receipt = SendReceipt()
        attempt = name.attempt if write_id.kind is WriteKind.ONCE else None
        self._id = task_id(plan.prefix, task, attempt)
        self._config = replace(config, transactional_id=_TRANSACTIONAL)
        self._lease = lease
        self._leased = ExitStack()
        self._plan = plan
        self._unit = write_id
        self._task = task
        self._clock = clock
        self._own = SendReceipt()
        self._checksum = RowChecksum()
        self._producer: KafkaProducer | None = None
        self._began_at = 0
        self._aborts = False
        self._heard = -1
        self._topic_ids: dict[str, UUID] = {}

    def append(self, topic: str, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None) -> None:
        """Rows of one topic, as for ``KafkaProducer.append_columns``."""
        self._checksum.add(topic, columns, partitions)
        if self.action in (TaskAction.WRITE, TaskAction.REWRITE):
            producer = self._open()
            producer.append_columns(topic, columns, partitions, self.receipt)
            if topic not in self._topic_ids:
                self._note_id(producer, topic)
            steps.reach("task in mid-write", self._task)

    def expect(self, topics: Sequence[str]) -> None:
        """Rows of these topics are to follow."""
        if self._producer is not None:
            self._producer.expect(topics)

    def partitions_for(self, topic: str) -> int:
        """Of a topic that rows were appended to; 0 where the batch is not written again."""
        return 0 if self._producer is None else self._producer.partitions_for(topic)

    def receipts(self) -> tuple[WriteReceipt, ...]:
        """Of the rows so far, when all of them are in the log and their offsets known."""
        if self._producer is None:
            return ()
        self._producer.flush()
        self.receipt.wait(self._config.delivery_timeout_ms)
        for topic in {place.topic for place in self.receipt.deliveries} - self._topic_ids.keys():
            self._note_id(self._producer, topic)
        name = TaskName(self._unit.query, self._unit.number, self._task)
        return receipts_of(name, self.receipt.deliveries, self._began_at, self._clock.epoch_ms())

    def append_own(self, topic: str, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None = None) -> None:
        """Records of the sink's own, in the transaction of the rows and not counted among them."""
        self._open().append_columns(topic, columns, partitions, self._own)

    def prepare(self) -> TaskReport:
        """Proves a replay, marks the ledger, and leaves the transaction open for commit."""
        rows = self._checksum.rows
        if self.action in (TaskAction.VERIFY, TaskAction.REWRITE):
            prove(self._plan, self._unit, self._task, rows)
        share = TaskShare(rows)
        if self._producer is not None:
            place = self._plan.ledger
            marker = Marker(self._unit.query, self._unit.number, self._task, rows)
            key, value = marker_record(self._plan.name, marker)
            columns = RecordColumns(bytes_column([key]), bytes_column([value]))
            self.append_own(place.topic, columns, np.array([place.marker_partition], np.int32))
            prepared = self._producer.prepare_transaction(self._config.delivery_timeout_ms)
            self.receipt.wait(0)
            self._own.wait(0)
            share = TaskShare(rows, prepared, self._marker_offset())
            steps.reach("task prepared", self._task)
        last = self._plan.entries.get(self._unit.query)
        repaired = self.action in (TaskAction.VERIFY, TaskAction.REWRITE)
        compared = self.action is TaskAction.SKIP and self._plan.ledger_start != LedgerStart(
            RecoveryMode.LEDGER, self._unit.number
        )
        return TaskReport(
            name=self._plan.name,
            ledger=self._plan.ledger,
            driver=self._plan.driver,
            write_id=self._unit,
            action=self.action,
            share=share,
            began_at=self._began_at,
            tasks_before=len(self._plan.entries[self._unit.query].tasks) if repaired else 0,
            decided=self._plan.entries[self._unit.query].total if compared else None,
            markers_before=0 if last is None else max(len(last.tasks), last.markers_before),
            topics=self._topics(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and self._producer is not None and self._aborts:
            # A broker that does not answer ends it after transaction.timeout.ms.
            with suppress(Exception):
                self._producer.abort_transaction(_ABORT_MS)
        self._leased.__exit__(kind, error, at)

    def _topics(self) -> tuple[tuple[str, UUID], ...]:
        if self._producer is None:
            return ()
        names = sorted({place.topic for place in self.receipt.deliveries})
        known = [(name, self._producer.topic_id(name)) for name in names]
        recreated = [name for name, topic_id in known if self._topic_ids.get(name, topic_id) != topic_id]
        if recreated:
            raise ExactlyOnceError(
                f"Task {self._task} of {self._unit} (name {self._plan.name}): topic {', '.join(recreated)} was deleted "
                "(and perhaps made again) while it wrote, and the rows of before are gone. Nothing is committed: run "
                "the task again, or start the query again."
            )
        return tuple((name, topic_id) for name, topic_id in known if topic_id is not None)

    def _note_id(self, producer: KafkaProducer, topic: str) -> None:
        """Of the topic that rows go to, once the cluster has answered this task: a kept producer may know an older."""
        topic_id = producer.topic_id(topic, self._heard)
        if topic_id is not None:
            self._topic_ids[topic] = topic_id

    def _marker_offset(self) -> int:
        """Where the marker is: whoever finds the transaction gone looks there."""
        place = self._plan.ledger
        offset = self._own.deliveries[TopicPartition(place.topic, place.marker_partition)].last_offset
        if offset < 0:
            raise ExactlyOnceError(f"The brokers have the marker of task {self._task}, but do not say at which offset")
        return offset

    def _open(self) -> KafkaProducer:
        if self._producer is None:
            self._began_at = self._clock.epoch_ms()
            self._producer = self._leased.enter_context(self._lease(self._config))
            # A kept one may know a topic that was made again since by its old id. The response comes with the next one.
            self._heard = self._producer.refresh()
            fence = self._producer.init_transactions(transactional_id=self._id)
            self._aborts = fence.end_txn_version >= END_TXN_V2
            self._producer.begin_transaction()
            steps.reach("task initialised", self._task)
        return self._producer
