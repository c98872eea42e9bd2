"""Independent readers (librdkafka) that note every row with its offset, and how far they have come."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition

from tests.faults.exactly_once.reader import offsets_at_end
from tests.soak.events import Recorder, workload_of, write_of
from tests.support.waiting import until

_CHUNK = 500
_POLL_S = 0.2
_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)  # any other error librdkafka gets over itself

Place = tuple[str, int]
Ends = Mapping[Place, int]


class ReaderError(AssertionError):
    """What a reader may never meet with."""


@dataclass(frozen=True)
class Source:
    """What all readers read: topics with their partitions, from their start."""

    servers: str
    topics: Mapping[str, int]

    @property
    def places(self) -> list[Place]:
        return [(topic, number) for topic, count in self.topics.items() for number in range(count)]

    def ends(self, isolation: IsolationLevel) -> dict[Place, int]:
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


class Reader(threading.Thread):
    """Reads until ``close``. ``rows`` counts what each kind of write has got; ``error`` ends the reader."""

    def __init__(self, source: Source, name: str, isolation: str, folder: Path) -> None:
        super().__init__(name=name, daemon=True)
        self.rows: Counter[str] = Counter()
        self.error: Exception | None = None
        self._source = source
        self._isolation = isolation
        self._record = Recorder(folder, f"reader-{name}")
        self._passed: dict[Place, int] = {}
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self.join(30)

    def check(self) -> None:
        """Raises what the reader has met with."""
        if self.error is not None:
            raise ReaderError(f"{self.name}: {self.error}") from self.error

    def await_passed(self, ends: Ends, timeout_s: float) -> None:
        """Until the reader has everything below these offsets."""

        def behind() -> dict[Place, int]:
            self.check()
            return {place: end for place, end in ends.items() if self._passed.get(place, -1) < end}

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
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(*place, 0) for place in self._source.places])
            while not self._closing.is_set():
                self._take(consumer)
        except Exception as error:
            self.error = error
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        seen: dict[Place, list[list[object]]] = {}
        ends: dict[Place, int] = {}
        for message in consumer.consume(_CHUNK, timeout=_POLL_S):
            error, place = message.error(), (message.topic(), message.partition())
            if error is None:
                row = (message.key() or b"").decode(errors="backslashreplace")
                seen.setdefault(place, []).append([message.offset(), _name(row, message.value())])
                self.rows[workload_of(write_of(row))] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[place] = message.offset()
            elif error.code() in _GONE:
                raise ReaderError(f"what was there is gone: {error}")
        for place, rows in seen.items():
            self._record("seen", **self._where(place), rows=rows)
        for place, offset in ends.items():
            if self._passed.get(place) != offset:
                self._record("passed", **self._where(place), offset=offset)
                self._passed[place] = offset

    def _where(self, place: Place) -> dict[str, object]:
        topic, partition = place
        return {"reader": self.name, "isolation": self._isolation, "topic": topic, "partition": partition}


def _name(row: str, value: bytes | None) -> str:
    """The row as the history has it: its record has its number as the value, also a dead letter. A row that has the
    value of another one, or a damaged one, gets a name that no row has, by which the checker finds it."""
    return row if value == row.rsplit("/", 1)[-1].encode() else f"{row} with value {value!r}"
