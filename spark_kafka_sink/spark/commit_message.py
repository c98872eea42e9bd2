"""The message of a task to the driver, and the driver's report on all messages."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, get_type_hints

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.plain_json import UNREADABLE, parse, plain
from spark_kafka_sink.common.task_figures import NO_FIGURES, TaskFigures, count_noun, performance
from spark_kafka_sink.errors import KafkaError

if TYPE_CHECKING:
    from spark_kafka_sink.exactly_once.values import TaskReport

if TYPE_CHECKING or importlib.util.find_spec("pyspark.sql.datasource") is not None:
    from pyspark.sql.datasource import WriterCommitMessage as WriterCommitMessage  # noqa: PLC0414 (mypy: others import it from here)
else:

    class WriterCommitMessage:
        """The replacement on Spark 3.5, which has no Python data sources, for the class of newer Sparks."""


@dataclass(frozen=True, slots=True)
class PartitionWrite:
    """The records of one task in one partition: count, bytes in the log, first and last offset.

    Both offsets are -1 with ``acks=0``. Records of other writers may lie between them.
    """

    topic: str
    partition: int
    count: int
    bytes: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class KafkaCommitMessage(WriterCommitMessage):
    """The only data that reaches the driver's ``commit`` from a task.

    ``report``: the report of an exactly-once task, None for at-least-once. ``figures``: the counts and times of the
    task's producer.
    """

    writes: tuple[PartitionWrite, ...] = ()
    report: TaskReport | None = None
    figures: TaskFigures = NO_FIGURES

    def to_json(self) -> str:
        """The message as JSON, for ``write_kafka``: a Spark Connect server returns it, so it must not be unpickled."""
        return json.dumps(asdict(self), default=plain)

    @classmethod
    def from_json(cls, text: object) -> Self:
        """The message of a task. Raises ``KafkaError`` for anything but a message of the same release."""
        try:
            message: Self = parse(cls, json.loads(text), _types_of_fields(cls))  # type: ignore[arg-type]  # a TypeError is caught
        except UNREADABLE as error:
            raise KafkaError(f"Spark returned something other than a task's message: {error!a:.200}") from error
        return message


@cache
def _types_of_fields(message: type) -> Mapping[str, Any]:
    """The types of the message's fields, among them TaskReport, which this file imports for the type checker only."""
    from spark_kafka_sink.exactly_once.values import TaskReport

    return get_type_hints(message, localns={"TaskReport": TaskReport})


class LogLine(NamedTuple):
    """A line for the driver's log."""

    text: str
    level: int = logging.INFO


class Committed(NamedTuple):
    """A commit. ``line``: the line for the driver's log. ``replayed``: whether the batch was committed before, so that
    nothing was written."""

    line: str
    replayed: bool = False


def committed(messages: Sequence[WriterCommitMessage | None], clock: Clock) -> str:
    """``336776 rows (54525952 bytes) written to 4 partitions of 1 topic by 8 tasks in 2.1 s (160369 rows/s, …``.

    The time is from the first task's begin to now.
    """
    line = f"{_totals(messages)} by {count_noun(len(messages), 'task')}"
    figures = [
        message.figures
        for message in messages
        if isinstance(message, KafkaCommitMessage) and message.figures != NO_FIGURES
    ]
    return f"{line} {performance(figures, clock.epoch_ms())}" if figures else line


def aborted(messages: Sequence[WriterCommitMessage | None]) -> LogLine:
    """The line on what stays in Kafka after an aborted at-least-once write. Failed tasks (None) sent no counts."""
    finished = sum(message is not None for message in messages)
    if not messages:
        return LogLine("The write was aborted before a task started", logging.WARNING)
    if not finished:
        return LogLine(
            "The write was aborted before a task finished. Rows that a task sent before it failed stay in Kafka, and "
            "a repeated write writes them again (at least once)",
            logging.WARNING,
        )
    return LogLine(
        f"The write was aborted, but its rows stay in Kafka (at least once): {_totals(messages)} by the {finished} of "
        f"{count_noun(len(messages), 'task')} that finished, plus the rows that the others sent",
        logging.WARNING,
    )


def _totals(messages: Sequence[WriterCommitMessage | None]) -> str:
    writes = [write for message in messages if isinstance(message, KafkaCommitMessage) for write in message.writes]
    partitions = {(write.topic, write.partition) for write in writes}
    topics = {topic for topic, _ in partitions}
    return (
        f"{count_noun(sum(write.count for write in writes), 'row')} ({sum(write.bytes for write in writes)} bytes) "
        f"written to {count_noun(len(partitions), 'partition')} of {count_noun(len(topics), 'topic')}"
    )
