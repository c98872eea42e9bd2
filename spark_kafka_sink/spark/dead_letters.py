"""Dead letters: the stage that makes them of rejected rows, which no other code does, and their records in Kafka, with
the headers of Kafka Connect (``DeadLetterQueueReporter``). Only a rejected row becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.errors import DeadLetterLimitError, KafkaError
from spark_kafka_sink.exactly_once.decode import DecodedRecord, decode_batches
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.producer.core import ProducerCore
from spark_kafka_sink.producer.receipt import RefusedRecord
from spark_kafka_sink.records.columns import (
    FieldLengths,
    Int32Array,
    RecordColumns,
    TopicColumn,
    bytes_column,
    encode_varint,
    java_size_estimate,
)
from spark_kafka_sink.records.encode import header_section
from spark_kafka_sink.spark.dead_letter_options import NO_TOPIC, DeadLetterOptions, Reason
from spark_kafka_sink.spark.rows import KAFKA_PRODUCE, TOO_LARGE, End, FaultKind, RejectedRows, Rows
from spark_kafka_sink.spark.validate import doubt_limit, known_limits

_PIECE_BYTES: Final = 1 << 20
"""Dead letters are appended this many bytes at a time: an append costs as much as a few hundred of them."""

_LAST_FLUSH_MS: Final = 5_000.0

_LETTER_OVERHEAD: Final = 512
"""Connect's headers, about."""


class DeadLetterWriter:
    """Writes dead letters on one thread. It holds them, and appends them in pieces, the last one in ``finish``.

    Rows are counted as they came: a replay counts the same, whatever partition counts and limits are then.
    """

    def __init__(self, end: End, dead: DeadLetterOptions, clock: Clock, name: TaskName) -> None:
        self.reasons = dead.reasons
        self._end = end
        self._dead = dead
        self._clock = clock
        self._task = name.task
        self._encoder = DeadLetterEncoder(dead.connector or name.query, name.task, dead.connect_headers)
        self._held: list[DeadLetters] = []
        self._held_size = 0
        self._letters = 0
        self._refused = end.keep_refused() if Reason.RECORD_TOO_LARGE in dead.reasons else None

    def __call__(self, rows: Rows) -> Iterator[Rows]:
        """The rows that are kept, if there are any."""
        for rejected in rows.rejected:
            self._take(rejected, rows)
        if not rows.are_all_rejected:
            yield replace(rows, rejected=()) if rows.rejected else rows

    def take_refused(self, rows: Rows) -> Iterator[Rows]:
        """A stage before the rows are validated: what brokers have refused shows which limits to ask for again."""
        self._write_refused()
        yield rows

    def finish(self) -> None:
        """After the last row: appends what is held. If brokers may refuse records, waits until all are acknowledged."""
        with self._end.meter.appending():
            self._append_held()
        if self._refused is None:
            return
        self._end.flush()
        while self._write_refused():
            self._append_held()
            self._end.flush()

    def _append_held(self) -> None:
        held, self._held, self._held_size = self._held, [], 0
        if held:
            limit = self._limit(self._end.core(), self._dead.topic)
            self._end.append_own(self._dead.topic, self._encoder.encode(held, limit))

    def _take(self, rejected: RejectedRows, rows: Rows) -> None:
        places = rejected.rows
        topics = TopicColumn(("",)) if rejected.kind.reason in NO_TOPIC else rows.topics[places]
        columns = rows.columns.take(places) if rejected.columns is None else rejected.columns
        partitions = None if rows.partitions is None else rows.partitions[places]
        self._end.count(topics, columns, partitions)
        if self._end.writes:
            now_ms = self._clock.epoch_ms()
            times = columns.timed(now_ms).timestamps
            columns = replace(columns, timestamps=np.full(len(columns), now_ms, np.int64) if times is None else times)
            self._hold(DeadLetters(rejected.kind, rejected.messages, topics, columns, partitions))

    def _write_refused(self) -> bool:
        """The records that brokers have refused so far; returns whether there were any. They are taken one by one, and
        as often as rows are appended: ``RefusalReceipt`` says what they hold till then.
        """
        if self._refused is None:
            return False
        rows, own = self._refused
        end, any_refused = self._end, False
        while (row := rows.take_refused()) is not None:
            any_refused = True
            doubt_limit(end.core(), row.partition.topic)
            self._hold(dead_letter_for(row))
        while (letter := own.take_refused()) is not None:
            any_refused = True
            doubt_limit(end.core(), letter.partition.topic)
            shorter = shorter_dead_letter(letter)
            if shorter is None:
                raise letter.error
            end.append_own(letter.partition.topic, shorter)
        return any_refused

    def _hold(self, letters: DeadLetters) -> None:
        self._end.meter.add_dead_letters(letters.kind.reason.value, len(letters))
        self._letters += len(letters)
        if (text := self._dead.over_limit(self._letters)) is not None:
            self._send_held_before_failing()
            raise DeadLetterLimitError(f"Task {self._task}: {text} The last: {letters.messages[-1]}")
        self._held.append(letters)
        self._held_size += letters.size + _LETTER_OVERHEAD * len(letters)
        if self._held_size >= _PIECE_BYTES:
            self._append_held()

    def _send_held_before_failing(self) -> None:
        """At least once, send the dead letters within the limit, which the error points to. Transactions abort."""
        if self._held and not self._end.is_transaction:
            with suppress(KafkaError):  # the task fails already, with another error
                self._append_held()
                self._end.core().flush(_LAST_FLUSH_MS)

    def _limit(self, core: ProducerCore, topic: str) -> int:
        """The largest record in bytes that the dead-letter topic takes."""
        core.partition_count(topic)
        limit = known_limits(core, [topic]).get(topic)
        size = min(core.config.max_request_size, core.config.buffer_memory)
        return size if limit is None else min(size, limit)


_CLASSES: Final = {
    "KEY_CONVERTER": "spark_kafka_sink.schemas.formats.task_formats.TaskFormats",
    "VALUE_CONVERTER": "spark_kafka_sink.schemas.formats.task_formats.TaskFormats",
    "HEADER_CONVERTER": "spark_kafka_sink.records.encode.header_column",
    KAFKA_PRODUCE: "spark_kafka_sink.producer.producer.KafkaProducer",
}

_CONNECT: Final = "__connect.errors."
_OMITTED: Final = "__pykafka.omitted."
_LONGEST_MESSAGE: Final = 2_000
_MOST_KEPT: Final = 1_000
_NO_PARTITION: Final = -1
_ADDED: Final = (_CONNECT.encode(), _OMITTED.encode())

_REFUSED: Final = FaultKind(Reason.RECORD_TOO_LARGE, TOO_LARGE)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Rows that were rejected for one reason, as they would have been sent. ``topics``: "" for a null one.
    ``columns``: with timestamps. ``partitions``: as the rows name them, -1 for none; None: no row names one.
    """

    kind: FaultKind
    messages: Sequence[str]
    topics: TopicColumn
    columns: RecordColumns
    partitions: Int32Array | None

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def size(self) -> int:
        """Bytes of the columns."""
        fields = (self.columns.key, self.columns.value, self.columns.headers)
        return sum(each.nbytes for each in fields if each is not None)

    def places(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of each row."""
        names, codes = self.topics.names, self.topics.codes
        topics = repeat(names[0], len(self)) if codes is None else map(names.__getitem__, codes.tolist())
        numbers = repeat(_NO_PARTITION) if self.partitions is None else self.partitions.tolist()
        return zip(topics, numbers, strict=False)


class DeadLetterEncoder:
    """Makes records of dead letters: the rows' fields and Connect's headers. ``connector``: name of the query;
    ``task``: Spark's partition; ``connect`` False: without these headers.
    """

    def __init__(self, connector: str, task: int, connect: bool) -> None:
        self._connector = _header("connector.name", connector)
        self._task = _header("task.id", str(task))
        self._connect = connect
        self._kept: dict[FaultKind, dict[tuple[tuple[str, int], str], _Added]] = {}
        """What ``_added`` returned for rows of this kind, place and message."""

    def encode(self, dead: Sequence[DeadLetters], limit: int) -> RecordColumns:
        """A record that takes more than ``limit`` bytes goes without its value, then also without its key and its own
        headers; headers tell their sizes and SHA-256.
        """
        columns = RecordColumns(
            _joined([(each.columns.key, len(each)) for each in dead]),
            _joined([(each.columns.value, len(each)) for each in dead]),
            bytes_column([section for each in dead for section in self._sections(each)]),
            np.concatenate([each.columns.timestamps for each in dead if each.columns.timestamps is not None]),
        )
        too_large = np.flatnonzero(java_size_estimate(FieldLengths.of(columns)) > limit).tolist()
        return self._shortened(columns, dead, too_large, limit) if too_large else columns

    def _sections(self, letters: DeadLetters) -> Iterable[bytes]:
        """Each row's own headers and Connect's."""
        own, added = letters.columns.headers, self._added(letters)
        if own is None:
            return [each.alone for each in added]
        return map(_Added.behind, added, own.to_pylist())

    def _added(self, letters: DeadLetters) -> Sequence[_Added]:
        """The headers that each row gets."""
        if not self._connect:
            return [_NOTHING] * len(letters)
        kind = letters.kind
        kept = self._kept.setdefault(kind, {})
        rows = zip(letters.places(), letters.messages, strict=False)
        return [kept.get(row) or self._keep(kind, *row) for row in rows]

    def _keep(self, kind: FaultKind, place: tuple[str, int], message: str) -> _Added:
        topic, partition = place
        text = message[:_LONGEST_MESSAGE].encode()
        data = b"".join(
            (
                _header("topic", topic) if topic else b"",
                _header("partition", str(partition)),
                _OFFSET,
                self._connector,
                self._task,
                _header("stage", kind.stage),
                _header("class.name", _CLASSES[kind.stage]),
                _header("exception.class.name", kind.exception),
                _MESSAGE,
                _varint(len(text)),
                text,
            )
        )
        kept = self._kept[kind]
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        added = kept[place, message] = _Added.of(9 if topic else 8, data)
        return added

    def _shortened(
        self, columns: RecordColumns, dead: Sequence[DeadLetters], too_large: Sequence[int], limit: int
    ) -> RecordColumns:
        keys, values, sections = (_values(each, columns) for each in (columns.key, columns.value, columns.headers))
        own = [section for each in dead for section in _values(each.columns.headers, each)]
        added = [headers for each in dead for headers in self._added(each)]
        for row in too_large:
            record = _Record(keys[row], values[row], own[row], added[row])
            while record.size > limit and (shorter := record.shorter()) is not None:
                record = shorter
            keys[row], values[row], sections[row] = record.key, record.value, record.section
        return RecordColumns(bytes_column(keys), bytes_column(values), bytes_column(sections), columns.timestamps)


@lru_cache(256)
def _header(name: str, value: str) -> bytes:
    return _entry(_CONNECT + name, value.encode())


def _entry(name: str, value: bytes) -> bytes:
    key = name.encode()
    return encode_varint(len(key)) + key + encode_varint(len(value)) + value


_MESSAGE: Final = encode_varint(len(_CONNECT + "exception.message")) + (_CONNECT + "exception.message").encode()

_OFFSET: Final = _header("offset", "-1")

_varint: Final = lru_cache(10_000)(encode_varint)


class _Added(NamedTuple):
    """Headers that a row gets. ``alone``: the header section of a row that has no others."""

    number: int
    data: bytes
    alone: bytes

    @classmethod
    def of(cls, number: int, data: bytes) -> _Added:
        return cls(number, data, _varint(number) + data)

    def behind(self, section: bytes | None) -> bytes:
        """The header section with these headers behind its own."""
        if section is None:
            return self.alone
        own, begin = _counted(section)
        return _varint(own + self.number) + section[begin:] + self.data

    def and_omitted(self, field: str, data: bytes) -> _Added:
        """These headers, and those that describe a field that is left out of the dead letter."""
        size = _entry(f"{_OMITTED}{field}.size", b"%d" % len(data))
        digest = _entry(f"{_OMITTED}{field}.sha256", sha256(data).hexdigest().encode())
        return _Added.of(self.number + 2, self.data + size + digest)


_NOTHING: Final = _Added.of(0, b"")


def _counted(section: bytes) -> tuple[int, int]:
    """The number of headers of a section, and where the first begins."""
    number = shift = position = 0
    while True:
        byte = section[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number >> 1, position


class _Record(NamedTuple):
    """One dead letter. ``own``: the header section of the row; None: it has none."""

    key: bytes | None
    value: bytes | None
    own: bytes | None
    added: _Added

    @property
    def section(self) -> bytes:
        return self.added.behind(self.own)

    @property
    def size(self) -> int:
        return int(java_size_estimate(FieldLengths.of(self.as_columns(None)))[0])

    def shorter(self) -> _Record | None:
        """The letter without its value, or else its key, or else the row's own headers; None if it has none of them."""
        if self.value is not None:
            return self._replace(value=None, added=self.added.and_omitted("value", self.value))
        if self.key is not None:
            return self._replace(key=None, added=self.added.and_omitted("key", self.key))
        if self.own is not None:
            return self._replace(own=None, added=self.added.and_omitted("headers", self.own))
        return None

    def as_columns(self, timestamp: int | None) -> RecordColumns:
        times = None if timestamp is None else np.array([timestamp], np.int64)
        return RecordColumns(bytes_column([self.key]), bytes_column([self.value]), bytes_column([self.section]), times)


def _joined(parts: Sequence[tuple[pa.BinaryArray | None, int]]) -> pa.BinaryArray | None:
    """Columns with their numbers of rows, one after the other; an absent one is null."""
    if all(column is None for column, _ in parts):
        return None
    return pa.concat_arrays([pa.nulls(rows, pa.binary()) if column is None else column for column, rows in parts])


def _values(column: pa.BinaryArray | None, of: Sized) -> list[Any]:
    return [None] * len(of) if column is None else column.to_pylist()


def dead_letter_for(record: RefusedRecord) -> DeadLetters:
    """The dead letter for a row that the broker refused. Its partition is the one that it was sent to."""
    sent = _sent_record(record)
    columns = RecordColumns(
        bytes_column([sent.key]),
        bytes_column([sent.value]),
        bytes_column([header_section(sent.headers)]),
        np.array([sent.timestamp], np.int64),
    )
    where = np.array([record.partition.partition], np.int32)
    return DeadLetters(_REFUSED, [str(record.error)], TopicColumn((record.partition.topic,)), columns, where)


def shorter_dead_letter(record: RefusedRecord) -> RecordColumns | None:
    """A refused dead letter in a shorter form; None: there is none."""
    sent = _sent_record(record)
    own = [each for each in sent.headers if not each[0].startswith(_ADDED)]
    added = header_section([each for each in sent.headers if each[0].startswith(_ADDED)])
    number, begin = _counted(added)
    section = header_section(own) if own else None
    shorter = _Record(sent.key, sent.value, section, _Added.of(number, added[begin:])).shorter()
    return None if shorter is None else shorter.as_columns(sent.timestamp)


def _sent_record(record: RefusedRecord) -> DecodedRecord:
    (batch,) = decode_batches(record.batch)
    (sent,) = batch.records
    return sent
