"""``TaskRows``: the value that goes through the stages of a task's pipeline (``pipeline.py``), as columns without a
Python object per row, with the rows that a stage has rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark import TaskContext

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.producer.partitioner import LEFT_OUT, NO_PARTITION
from spark_kafka_sink.records.arrays import Int32Array
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.spark.options import Reason

BoolArray: TypeAlias = npt.NDArray[np.bool_]

ILLEGAL_ARGUMENT: Final = "java.lang.IllegalArgumentException"
TOO_LARGE: Final = "org.apache.kafka.common.errors.RecordTooLargeException"
UNKNOWN: Final = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
SERIALIZATION: Final = "org.apache.kafka.common.errors.SerializationException"

KAFKA_PRODUCE: Final = "KAFKA_PRODUCE"


class FaultKind(NamedTuple):
    """A kind of fault for which rows cannot be written. ``exception``: Java's class. ``stage``: Kafka Connect's name of
    the stage."""

    reason: Reason
    exception: str
    stage: str = KAFKA_PRODUCE


class RejectedRows(NamedTuple):
    """Rows that cannot be written, by their numbers in ascending order, and a message each.

    ``columns``: the rows in the form of their dead letters, if the columns of ``TaskRows`` do not have this form
    because the rows could not be encoded.
    """

    kind: FaultKind
    rows: npt.NDArray[np.intp]
    messages: Sequence[str]
    columns: RecordColumns | None = None

    def only(self, chosen: BoolArray) -> RejectedRows:
        """The rows for which ``chosen`` is true."""
        if chosen.all():
            return self
        columns = None if self.columns is None else self.columns.take(np.flatnonzero(chosen))
        return RejectedRows(self.kind, self.rows[chosen], list(compress(self.messages, chosen.tolist())), columns)


def reject(
    rejects: Collection[Reason], kind: FaultKind, rows: npt.NDArray[np.intp], messages: Sequence[str], advice: str = ""
) -> RejectedRows:
    """The rejected rows, by their numbers in ascending order, with a message each.

    Raises ``InvalidRecordError`` for the first of them, with ``advice``, if rows are not rejected for this reason.
    """
    if len(rows) and kind.reason not in rejects:
        raise InvalidRecordError(messages[0] + advice, int(rows[0]))
    return RejectedRows(kind, rows, messages)


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows of a task. ``first_row``: the first one's number in the task, from 0.

    ``topics``: the rows' topics. A rejected row whose topic is null or invalid has the topic of another row.
    ``columns``: key, value, headers are Spark's columns until the stage ``encode`` has made bytes of them.
    ``partitions``: the partitions that rows name, -1 where the producer chooses; None: it chooses for all.
    ``rejected``: the rows that a stage found it cannot write, each once. ``kept``: the rows that are not rejected;
    None: all.
    """

    first_row: int
    topics: TopicColumn
    columns: RecordColumns
    partitions: Int32Array | None = None
    rejected: tuple[RejectedRows, ...] = ()
    kept: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, part: slice) -> TaskRows:
        """The rows of a part. ``part``: a slice with start and stop."""
        start, stop = part.start, part.stop
        return TaskRows(
            self.first_row + start,
            self.topics[part],
            self.columns.slice(start, stop - start),
            None if self.partitions is None else self.partitions[part],
            tuple(
                inside._replace(rows=inside.rows - start)
                for rejected in self.rejected
                if len((inside := rejected.only((rejected.rows >= start) & (rejected.rows < stop))).rows)
            ),
            None if self.kept is None else self.kept[part],
        )

    def rejecting(self, found: RejectedRows) -> TaskRows:
        """The rows, with those in ``found`` rejected. A row that is already rejected keeps its first reason."""
        if self.kept is not None:
            found = found.only(self.kept[found.rows])
        return self._with(found) if len(found.rows) else self

    def rejecting_first(self, found: RejectedRows) -> TaskRows:
        """The rows, with those in ``found`` rejected for this reason, even if they are already rejected for another
        reason."""
        is_found = np.zeros(len(self), np.bool_)
        is_found[found.rows] = True
        others = (rejected.only(~is_found[rejected.rows]) for rejected in self.rejected)
        return replace(self, rejected=tuple(other for other in others if len(other.rows)))._with(found)

    def _with(self, found: RejectedRows) -> TaskRows:
        kept = np.ones(len(self), np.bool_) if self.kept is None else self.kept.copy()
        kept[found.rows] = False
        return replace(self, rejected=(*self.rejected, found), kept=kept)

    @property
    def are_all_rejected(self) -> bool:
        return self.kept is not None and not self.kept.any()

    @property
    def kept_topics(self) -> TopicColumn:
        """``topics`` without the names that only rejected rows have; there must be a kept row."""
        return self.topics if self.kept is None else self.topics.naming(self.kept)

    @property
    def kept_partitions(self) -> Int32Array | None:
        """``partitions`` for an append, marked so that it leaves out the rows that are not kept, without a copy of the
        others."""
        if self.kept is None:
            return self.partitions
        marked = np.full(len(self), NO_PARTITION, np.int32) if self.partitions is None else self.partitions.copy()
        marked[~self.kept] = LEFT_OUT
        return marked


Stage: TypeAlias = Callable[[TaskRows], Iterator[TaskRows]]
"""A step of the pipeline. Usually it yields its rows once; it may yield them in parts, or not at all."""


def run_stages(stages: Sequence[Stage], rows: TaskRows) -> Iterator[TaskRows]:
    """The rows that come out of the last stage."""
    if not stages:
        yield rows
        return
    for part in stages[0](rows):
        yield from run_stages(stages[1:], part)


@contextmanager
def number_errors(first_row: int) -> Iterator[None]:
    """A block in which an error about a row gets the row's number in the task. ``first_row``: the number of the
    columns' first row."""
    try:
        yield
    except InvalidRecordError as error:
        if error.row is None:
            raise
        raise type(error)(f"{error} ({row_text(first_row + error.row)})") from None


def row_text(row: int) -> str:
    """The task by its number, and the row by its number in the task."""
    context = TaskContext.get()
    task = "the task" if context is None else f"task {context.partitionId()}"
    return f"row {row} of {task}, counted from 0"
