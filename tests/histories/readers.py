"""Independent readers (librdkafka) that note every row with its offset, and how far they have come."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition

from tests.faults.exactly_once.reader import offsets_at_end
from tests.histories.events import LIVE, RAW, workload_of, write_of
from tests.histories.index import COMMITTED, UNCOMMITTED
from tests.histories.recorder import Recorder
from tests.histories.workloads import has_its_value
from tests.waiting import eventually, until

_CHUNK = 500
_POLL_S = 0.2
_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)  # any other error librdkafka gets over itself

Ends = Mapping[tuple[str, int], int]


class ReaderError(AssertionError):
    """What a reader may never meet with."""


@dataclass(frozen=True)
class Source:
    """What all readers read: ``topics`` and their partitions, from their start. ``incarnations``: the ids of topics.

    Topics may grow. One that is deleted is taken out, and put back with its new id when it is created again.
    """

    servers: str
    topics: dict[str, int]
    incarnations: dict[str, str]

    @property
    def places(self) -> list[tuple[str, int]]:
        return [(topic, number) for topic, count in list(self.topics.items()) for number in range(count)]

    def take_out(self, topic: str) -> str:
        """Readers let go of the topic from now on. Returns its id."""
        self.topics.pop(topic)
        return self.incarnations[topic]

    def put_back(self, topic: str, partitions: int, incarnation: str) -> None:
        self.incarnations[topic] = incarnation
        self.topics[topic] = partitions

    def ends(self, isolation: IsolationLevel) -> dict[tuple[str, int], int]:
        """High watermarks, or last stable offsets of read_committed."""
        found = {}
        for topic, count in self.topics.items():
            places = [TopicPartition(topic, number) for number in range(count)]
            ends = offsets_at_end(self.servers, places, isolation)
            found.update({(topic, number): end for number, end in ends.items()})
        return found

    def await_nothing_open(self, timeout_s: float) -> Ends:
        """Until no transaction is open in any partition; the ends then."""

        def both() -> tuple[Ends, Ends] | KafkaException:
            try:
                return self.ends(IsolationLevel.READ_COMMITTED), self.ends(IsolationLevel.READ_UNCOMMITTED)
            except KafkaException as error:  # a leader is being elected
                return error

        def closed(found: tuple[Ends, Ends] | KafkaException) -> bool:
            return isinstance(found, tuple) and found[0] == found[1]

        return until(both, closed, "transactions stay open", timeout_s)[1]


@dataclass
class _Read:
    """Of a partition: ``next`` is the offset to go on from; there is nothing to come below ``passed``."""

    incarnation: str
    next: int = 0
    passed: int = -1


class Reader(threading.Thread):
    """Reads until ``close``. ``rows`` counts what each write's workload has got; ``error`` ends the reader."""

    def __init__(self, source: Source, name: str, isolation: str, folder: Path) -> None:
        super().__init__(name=name, daemon=True)
        self.rows: Counter[str] = Counter()
        self.error: Exception | None = None
        self.grew: dict[str, float] = {}
        self._source = source
        self._isolation = isolation
        self._record = Recorder(folder, f"reader-{name}")
        self._read: dict[tuple[str, int], _Read] = {}
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self.join(30)

    def await_let_go(self, topic: str, timeout_s: float) -> None:
        """Until the reader has let go of a topic that was taken out of its source."""

        def gone() -> bool:
            return all(place[0] != topic for place in list(self._read))

        eventually(gone, f"{self.name} does not let go of {topic}", timeout_s)

    def await_passed(self, ends: Ends, timeout_s: float) -> None:
        """Until the reader has everything below these offsets."""

        def behind() -> dict[tuple[str, int], int]:
            if self.error is not None:
                raise ReaderError(f"{self.name}: {self.error}") from self.error
            return {place: end for place, end in ends.items() if self._passed(place) < end}

        until(behind, lambda left: not left, f"{self.name} does not come to the end", timeout_s)

    def run(self) -> None:
        settings = {
            "bootstrap.servers": self._source.servers,
            "group.id": self.name,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": self._isolation,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": 2_000,  # so that new partitions are known soon
            "log_level": 0,
        }
        try:
            while not self._closing.is_set():
                self._run(Consumer(settings))
        except Exception as error:
            self.error = error

    def _run(self, consumer: Consumer) -> None:
        """Until a topic is taken out, and the consumer with it: librdkafka ignores leader epochs that are lower than
        those it knows, and those of a topic that is created again begin anew."""
        try:
            consumer.assign([TopicPartition(*place, read.next) for place, read in self._read.items()])
            while not (self._closing.is_set() or self._let_go()):
                self._assign_new(consumer)
                self._take(consumer)
        finally:
            consumer.close()

    def _let_go(self) -> bool:
        """Forgets the topics that were taken out. Whether there was one."""
        gone = [place for place in self._read if place[0] not in self._source.topics]
        for place in gone:
            del self._read[place]
        return bool(gone)

    def _assign_new(self, consumer: Consumer) -> None:
        """Partitions that have come since."""
        new = [place for place in self._source.places if place not in self._read]
        self._read.update({place: _Read(self._source.incarnations[place[0]]) for place in new})
        if new:
            consumer.incremental_assign([TopicPartition(*place, 0) for place in new])

    def _take(self, consumer: Consumer) -> None:
        seen: dict[tuple[str, int], list[list[object]]] = {}
        ends: dict[tuple[str, int], int] = {}
        for message in consumer.consume(_CHUNK, timeout=_POLL_S):
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                row = (message.key() or b"").decode(errors="backslashreplace")
                seen.setdefault(place, []).append([message.offset(), _name(row, message.value())])
                self._read[place].next = message.offset() + 1
                self._count(workload_of(write_of(row)))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = message.offset()
            elif error.code() in _GONE:
                raise ReaderError(f"what was there is gone: {error}")
        for place, rows in seen.items():
            self._record("seen", **self._where(place), rows=rows)
        for place, offset in ends.items():
            if self._passed(place) != offset:
                self._record("passed", **self._where(place), offset=offset)
                self._read[place].passed = offset

    def _passed(self, place: tuple[str, int]) -> int:
        read = self._read.get(place)
        return -1 if read is None else read.passed

    def _count(self, workload: str) -> None:
        self.rows[workload] += 1
        self.grew[workload] = time.monotonic()

    def _where(self, place: tuple[str, int]) -> dict[str, object]:
        topic, partition = place
        where = {"topic": topic, "partition": partition, "incarnation": self._read[place].incarnation}
        return {"reader": self.name, "isolation": self._isolation, **where}


def _name(row: str, value: bytes | None) -> str:
    """The row as the history has it. One that has the value of another row, or a damaged one, gets a name that no row
    has, by which the checker finds it."""
    return row if has_its_value(row, value) else f"{row} with value {value!r}"


def live_readers(source: Source, folder: Path) -> tuple[Reader, Reader]:
    """Those that run all the time."""
    return Reader(source, LIVE, COMMITTED, folder), Reader(source, RAW, UNCOMMITTED, folder)


def fresh_reader(source: Source, folder: Path) -> Reader:
    """The one that reads from the start when everything is over."""
    return Reader(source, "fresh", COMMITTED, folder)
