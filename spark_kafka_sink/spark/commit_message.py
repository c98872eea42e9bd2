"""What a task tells the driver of its write, and what the driver says of all of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from spark_kafka_sink.exactly_once.receipts import WriteReceipt
    from spark_kafka_sink.exactly_once.values import TaskReport

_LOGGER = logging.getLogger("spark_kafka_sink")
_FORMAT = logging.Formatter("%(asctime)s %(levelname)s pykafka: %(message)s", "%y/%m/%d %H:%M:%S")


@dataclass(frozen=True, slots=True)
class PartitionWrite:
    """What one task wrote to one partition: records, their bytes in the log, first and last offset.

    With ``acks=0`` no broker says where records went: both offsets are -1. Between the two there may be records of
    others.
    """

    topic: str
    partition: int
    count: int
    bytes: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class KafkaCommitMessage(WriterCommitMessage):
    """The only thing that reaches the driver's ``commit`` from a task's ``write``."""

    writes: tuple[PartitionWrite, ...] = ()
    report: TaskReport | None = None
    """What an exactly-once task did; None for at-least-once."""
    receipts: tuple[WriteReceipt, ...] = ()
    """For receiptsPath."""


class Told(NamedTuple):
    """A line for the driver's log."""

    text: str
    level: int = logging.INFO


def committed(messages: Sequence[WriterCommitMessage | None]) -> str:
    """``336776 rows (54525952 bytes) written to 4 partitions of 1 topic by 8 tasks``."""
    return f"{_totals(messages)} by {_counted(len(messages), 'task')}"


def aborted(messages: Sequence[WriterCommitMessage | None]) -> str:
    """What an aborted write leaves behind: Kafka keeps what was sent, and the failed tasks (None) could not count."""
    finished = sum(message is not None for message in messages)
    return (
        "write aborted, what was sent stays in Kafka (at least once): "
        f"{_totals(messages)} by the {finished} of {_counted(len(messages), 'task')} that finished, and whatever the "
        "others had sent"
    )


def announce(text: str, level: int = logging.INFO) -> None:
    """One line in the driver's log.

    Spark's Python processes configure no logging, which would swallow it: without a handler it goes to stderr, which
    Spark passes on. Raise the level of the logger ``spark_kafka_sink`` to silence it.
    """
    if not _LOGGER.level:
        _LOGGER.setLevel(logging.INFO)
    if not _LOGGER.isEnabledFor(level):
        return
    record = _LOGGER.makeRecord(_LOGGER.name, level, __file__, 0, text, (), None)
    if _LOGGER.hasHandlers():
        _LOGGER.handle(record)
    else:
        sys.stderr.write(_FORMAT.format(record) + "\n")


def _totals(messages: Sequence[WriterCommitMessage | None]) -> str:
    writes = [write for message in messages if isinstance(message, KafkaCommitMessage) for write in message.writes]
    partitions = {(write.topic, write.partition) for write in writes}
    topics = {topic for topic, _ in partitions}
    return (
        f"{_counted(sum(write.count for write in writes), 'row')} ({sum(write.bytes for write in writes)} bytes) "
        f"written to {_counted(len(partitions), 'partition')} of {_counted(len(topics), 'topic')}"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
