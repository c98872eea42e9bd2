"""A task, the second of four processes: it writes its rows in a transaction and leaves it prepared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import TopicPartition
from spark_kafka_sink.common.shell import server_options
from spark_kafka_sink.common.task_figures import NO_FIGURES
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.checksum import row_sum
from spark_kafka_sink.exactly_once.decisions import check_owner, check_size, prove, task_action
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError, FencedRunError
from spark_kafka_sink.exactly_once.ledger import LAG_MS, missing_ledger
from spark_kafka_sink.exactly_once.ledger_format import marker_record
from spark_kafka_sink.exactly_once.ledger_topic import refuse_too_few
from spark_kafka_sink.exactly_once.receipts import TaskName, WriteReceipt, receipts_of
from spark_kafka_sink.exactly_once.session import fenced_message
from spark_kafka_sink.exactly_once.sweep import is_current
from spark_kafka_sink.exactly_once.values import (
    Marker,
    RecoveryMode,
    RowChecksum,
    SchemaId,
    TaskAction,
    TaskAttempt,
    TaskOutcome,
    TaskReport,
    TopicId,
    WritePlan,
    task_id,
)
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.task_output import Lease, TaskOutput
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2
from spark_kafka_sink.records.arrays import bytes_column
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn

_TRANSACTIONAL: Final = "exactly-once"
"""The transactional.id of a producer that is kept for later tasks, which its generated client.id contains. Each task
initialises an id of its own."""

_ABORT_MS: Final = 5_000.0
"""The time for which a failing task waits for its EndTxn before it raises."""


@contextmanager
def opened(config: ProducerConfig) -> Iterator[ProducerCore]:
    """A ``Lease`` of a new producer, closed after the block; a prepared transaction stays open."""
    producer = ProducerCore.open(config)
    try:
        yield producer
    finally:
        producer.close(0)


class TaskTransaction(TaskOutput):
    """A task's transaction, for a ``with`` block: ``append`` rows, then ``prepare``. One thread.

    A task without rows begins no transaction. If it is not the first attempt, it ends the transaction of the earlier
    attempt.

    A block that raises aborts the transaction under transactions v2. Under v1 it leaves the transaction open, and the
    next InitProducerId of the id aborts it. An EndTxn of this task would not bump the epoch, so its late rows would
    join the successor's transaction; an InitProducerId of this task would abort what a successor has open.

    Raises ``ExactlyOnceError`` when made, before anything is written, if the batch must not be written.
    """

    def __init__(
        self, config: ProducerConfig, plan: WritePlan, name: TaskAttempt, clock: Clock, lease: Lease = opened
    ) -> None:
        transactional = replace(config, transactional_id=_TRANSACTIONAL)
        super().__init__(transactional, clock, lease, own_topics=(plan.run.ledger.topic,))
        self._write_id, self._task = name.write_id, name.task
        self.action = task_action(plan, self._write_id, self._task)
        if self.writes:
            check_size(plan, self._write_id, self._task, server_options(config))
        self._id = task_id(plan.run.name, self._task)
        self._replaces_attempt = name.retried
        self._plan = plan
        self.figures = NO_FIGURES
        """The figures of the task's rows, known after ``receipts`` or ``prepare``."""
        self._rows = RowChecksum()
        self._has_begun = False
        self._aborts = False
        self._metadata_version = -1
        self._topics: set[str] = set()

    @property
    def writes(self) -> bool:
        """False in a replay whose rows are only compared with what is committed."""
        return self.action in (TaskAction.WRITE, TaskAction.REWRITE)

    def count(self, topics: TopicColumn, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None) -> None:
        self._rows += row_sum(topics, columns, partitions)

    def append(
        self, topic: str | TopicColumn, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None
    ) -> None:
        """Appends rows, as ``ProducerCore.append_columns`` does."""
        topics = TopicColumn.of(topic)
        if self._plan.run.ledger.topic in topics.names:
            raise ExactlyOnceError(f"Rows name the topic {self._plan.run.ledger.topic}, which is the ledgerTopic.")
        self._rows += row_sum(topics, columns, partitions)
        if self.writes:
            core = self._begun()
            self._topics.update(topics.names)
            core.append_columns(topics, columns, partitions, self.receipt)
            failpoints.hit("task in mid-write", self._task)

    def receipts(self) -> tuple[WriteReceipt, ...]:
        """The receipts of the rows so far. Waits until all rows are acknowledged."""
        if self._core is None:
            return ()
        self.flush()
        ended_at = self._clock.epoch_ms()
        self.figures = self.meter.figures(self.receipt)
        name = TaskName(self._write_id.query, self._write_id.number, self._task)
        return receipts_of(name, self.receipt.deliveries, self.began_at, ended_at, self.figures)

    def append_own(self, topic: str, columns: RecordColumns, partitions: npt.NDArray[np.int32] | None = None) -> None:
        """Appends the sink's own records, in the rows' transaction but not in their checksum."""
        core = self._begun()
        self._topics.add(topic)
        core.append_columns(topic, columns, partitions, self._own)

    def prepare(self, schemas: tuple[SchemaId, ...] = ()) -> TaskReport:
        """Proves a replay, appends the marker, and leaves the transaction open for commit. ``schemas``: the schemas of
        the rows."""
        plan, write_id, rows = self._plan, self._write_id, self._rows
        repaired = self.action in (TaskAction.VERIFY, TaskAction.REWRITE)
        if repaired:
            prove(plan, write_id, self._task, rows)
        outcome, ids = TaskOutcome(rows), dict[str, UUID | None]()
        if self._core is not None:
            marker = TopicPartition(plan.run.ledger.topic, plan.run.ledger.marker_partition)
            if not self._core.topic_exists(marker.topic, LAG_MS):
                raise missing_ledger(marker.topic)
            refuse_too_few(marker.topic, self._core.partition_count(marker.topic))
            # Before the marker, because only equal ids mean that the ledger has been there since.
            ids.update(self._core.topic_ids((*self._topics, marker.topic), self._metadata_version))
            key, value = marker_record(plan.run.name, Marker(write_id.query, write_id.number, self._task, rows))
            columns = RecordColumns(bytes_column([key]), bytes_column([value]))
            self.append_own(marker.topic, columns, np.array([marker.partition], np.int32))
            with self.meter.awaiting():
                prepared = self._core.transactions.prepare(self._config.delivery_timeout_ms)
            self.receipt.wait(0)
            self._own.wait(0)
            outcome = TaskOutcome(rows, prepared, self._marker_offset(marker))
            failpoints.hit("task prepared", self._task)
        elif self._replaces_attempt and self.writes:
            # The earlier attempt may have left a transaction open, which this one, without rows, does not replace.
            with self._lease(self._config) as producer:
                self._init(producer)
        if self.figures is NO_FIGURES:
            self.figures = self.meter.figures(self.receipt)
        last = plan.entries.get(write_id.query)
        trusted = plan.ledger_start.trusts(RecoveryMode.LEDGER, write_id.number)
        compared = last is not None and self.action is TaskAction.SKIP and not trusted
        replayed = last is not None and self.action is not TaskAction.WRITE and not trusted
        return TaskReport(
            run=plan.run,
            write_id=write_id,
            action=self.action,
            outcome=outcome,
            began_at=self.began_at,
            tasks_before=len(last.tasks) if last is not None and repaired else 0,
            decided=last.total if last is not None and compared else None,
            old_marker_count=0 if last is None else last.marker_count,
            topics=self._written(ids),
            schemas=schemas,
            decided_topics=last.topics if last is not None and replayed else (),
            turn=check_owner(plan.run.name, write_id.query, plan.entries, plan.ledger_start),
            ledger_id=ids.get(plan.run.ledger.topic),
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None and self._core is not None and self._aborts:
            with suppress(Exception):  # otherwise a broker aborts the transaction after transaction.timeout.ms
                self._core.transactions.abort(_ABORT_MS)
        super().__exit__(kind, error, at)

    def core(self) -> ProducerCore:
        if self._core is None:
            # A kept producer may have the old id of a recreated topic: ids count from the next metadata response on.
            self._metadata_version = super().core().refresh_metadata()
        return super().core()

    def _begun(self) -> ProducerCore:
        """The core, with the transaction begun."""
        core = self.core()
        if not self._has_begun:
            self._has_begun = True
            self._init(core)
            core.transactions.begin()  # chooses the protocol
            identity = core.transactions.identity
            self._aborts = identity is not None and identity.end_txn_version >= END_TXN_V2
            failpoints.hit("task initialised", self._task)
        return core

    def _init(self, core: ProducerCore) -> None:
        """Initializes the task's id. Raises if the run was fenced, because initializing the id would end what its
        successor has prepared."""
        driver = self._plan.run.driver
        if not is_current(core.calls, driver):
            raise FencedRunError(fenced_message(driver.identity.transactional_id, f"task {self._task} writes nothing"))
        core.transactions.init(transactional_id=self._id)

    def _written(self, ids: Mapping[str, UUID | None]) -> tuple[TopicId, ...]:
        """The topics written to that have a known id. (Old brokers know no ids.)"""
        written = {partition.topic for receipt in (self.receipt, self._own) for partition in receipt.deliveries}
        known = {topic: ids.get(topic) for topic in sorted(written - {self._plan.run.ledger.topic})}
        return tuple(TopicId(topic, topic_id) for topic, topic_id in known.items() if topic_id is not None)

    def _marker_offset(self, marker: TopicPartition) -> int:
        """The offset at which to look for the marker once the transaction is no longer open."""
        offset = self._own.deliveries[marker].last_offset
        if offset < 0:
            raise ExactlyOnceError(f"The brokers have the marker of task {self._task}, but do not say at which offset")
        return offset
