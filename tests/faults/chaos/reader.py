"""A read_committed reader that looks on all the time: every row once, in order, and how long none came."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.faults.chaos.query_job import ROWS, TASKS

_EACH = ROWS // TASKS
_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)  # any other error librdkafka gets over itself


class ReaderError(AssertionError):
    """What a reader may never see."""


@dataclass
class Expected:
    """What the next row of each partition is: Spark deals the numbers out to the tasks one by one."""

    rows: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(TASKS), 0))

    def take(self, partition: int, number: int, offset: int) -> None:
        """A row that a reader has got. ``ReaderError`` unless it is the one that comes next."""
        at = self.rows[partition]
        wanted = _number(partition, at)
        if number != wanted:
            place = f"partition {partition}, offset {offset}: row {number} where row {wanted} comes next"
            raise ReaderError(f"{place}: {'doubled or out of order' if number < wanted else 'rows are missing'}")
        self.rows[partition] = at + 1

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    @property
    def whole_batches(self) -> int:
        """Micro-batches that are there in every partition."""
        return min(self.rows.values()) // _EACH


def _number(partition: int, index: int) -> int:
    return index * TASKS + partition


@dataclass
class Stall:
    """Time without a new row. ``at``: seconds after the start, when it ended."""

    seconds: float = 0.0
    at: float = 0.0


class Reader(threading.Thread):
    """Reads until ``close``. ``error`` is what it has seen wrong; it reads on no more then."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.expected = Expected()
        self.error: Exception | None = None
        self.longest = Stall()
        self._servers, self._topic = servers, topic
        self._began = self._grew = time.monotonic()
        self._closing = threading.Event()

    @property
    def stalled_s(self) -> float:
        """Since the last row came."""
        return time.monotonic() - self._grew

    def close(self) -> None:
        self._closing.set()
        self.join(30)

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(TASKS)])
            while not self._closing.is_set():
                self._take(consumer)
        except Exception as error:
            self.error = error
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        messages = consumer.consume(500, timeout=0.2)
        for message in messages:
            if message.error() is None:
                self.expected.take(message.partition(), int(message.value()), message.offset())
            elif message.error().code() in _GONE:
                raise ReaderError(f"what was there is gone: {message.error()}")
        if any(message.error() is None for message in messages):
            now = time.monotonic()
            if self.expected.total > len(messages) and now - self._grew > self.longest.seconds:
                self.longest = Stall(now - self._grew, now - self._began)
            self._grew = now
