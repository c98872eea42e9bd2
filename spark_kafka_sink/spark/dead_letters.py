"""Dead letters: the stage that makes them of rejected rows, and their records in Kafka with the headers of Kafka
Connect (``DeadLetterQueueReporter``). Only rejected rows become Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from kio.schema.errors import ErrorCode
from kio.serial.readers import read_signed_varint

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import LARGEST_INT32
from spark_kafka_sink.errors import DeadLetterLimitError, KafkaError
from spark_kafka_sink.exactly_once.decode import decode_batches
from spark_kafka_sink.exactly_once.receipts import TaskName
from spark_kafka_sink.producer.partitioner import NO_PARTITION
from spark_kafka_sink.producer.receipt import RefusedRecord
from spark_kafka_sink.producer.task_output import TaskOutput
from spark_kafka_sink.records.arrays import Int32Array, Int64Array, bytes_column
from spark_kafka_sink.records.columns import RecordColumns, TopicColumn
from spark_kafka_sink.records.encode import header_section
from spark_kafka_sink.records.sizes import FieldLengths, java_size_estimate
from spark_kafka_sink.records.varints import encode_varint
from spark_kafka_sink.spark.options import NO_TOPIC, Reason, SinkOptions
from spark_kafka_sink.spark.rows import KAFKA_PRODUCE, FaultKind, RejectedRows, TaskRows
from spark_kafka_sink.spark.validate import REFUSALS, exceeds, kept_codes, look_up_limits

_PIECE_BYTES: Final = 1 << 20
"""The bytes of dead letters that are appended at a time, because an append costs as much as a few hundred dead
letters."""

_LAST_FLUSH_MS: Final = 5_000.0

_LETTER_OVERHEAD: Final = 512
"""The approximate bytes of Connect's headers."""


class DeadLetterWriter:
    """The stage that turns rejected rows into dead letters, on one thread. It holds them, and appends them in pieces,
    the last one in ``finish``.

    All rows are counted, the rejected ones included: which rows are rejected may depend on partition counts and limits,
    and a replay must count the same.
    """

    def __init__(self, output: TaskOutput, options: SinkOptions, clock: Clock, name: TaskName) -> None:
        assert options.dead_letters is not None
        self._output = output
        self._dead = options.dead_letters
        self._is_transaction = options.exactly_once is not None
        self._clock = clock
        self._task = name.task
        self._connector = self._dead.connector or name.query
        self._held: list[DeadLetter] = []
        self._held_size = 0
        self._count = 0

    def __call__(self, rows: TaskRows) -> Iterator[TaskRows]:
        """The rows that are kept, if there are any."""
        self._write_refused()
        for rejected in rows.rejected:
            self._take(rejected, rows)
        if not rows.are_all_rejected:
            yield replace(rows, rejected=()) if rows.rejected else rows

    def finish(self) -> None:
        """Appends the held letters after the last row. If brokers may refuse records, waits until all are acknowledged.
        (A refusal fails a transaction.)
        """
        with self._output.meter.appending():
            self._append_held()
        if kept_codes(self._dead.reasons) and not self._is_transaction:
            self._output.flush()
            while self._write_refused():
                self._append_held()
                self._output.flush()

    def _take(self, rejected: RejectedRows, rows: TaskRows) -> None:
        kind, places = rejected.kind, rejected.rows
        topics = TopicColumn(("",)) if kind.reason in NO_TOPIC else rows.topics[places]
        columns = rows.columns.take(places) if rejected.columns is None else rejected.columns
        partitions = None if rows.partitions is None else rows.partitions[places]
        self._output.count(topics, columns, partitions)
        if not self._output.writes:
            return
        self._check_limit(kind, rejected.messages)
        now_ms = self._clock.epoch_ms()
        times = columns.with_timestamps(now_ms).timestamps
        fields = map(_values, (columns.key, columns.value, columns.headers))
        added = self._added_headers(kind, topics, partitions, rejected.messages)
        for letter in zip(*fields, added, repeat(now_ms) if times is None else times.tolist(), strict=False):
            self._hold(DeadLetter(*letter))

    def _added_headers(
        self, kind: FaultKind, topics: TopicColumn, partitions: Int32Array | None, messages: Sequence[str]
    ) -> list[_ErrorHeaders]:
        if not self._dead.connect_headers:
            return [_NOTHING] * len(messages)
        names, codes = topics.names, topics.codes
        named = repeat(names[0]) if codes is None else map(names.__getitem__, codes.tolist())
        numbers = repeat(NO_PARTITION) if partitions is None else partitions.tolist()
        rows = list(zip(named, numbers, (message[:_MAX_MESSAGE_LENGTH] for message in messages), strict=False))
        made = {row: _connect_headers(self._connector, self._task, kind, *row) for row in dict.fromkeys(rows)}
        return [made[row] for row in rows]

    def _write_refused(self) -> bool:
        """Writes the records that brokers have refused so far; returns whether there were any."""
        any_refused = False
        for record, is_letter in self._output.refused():
            any_refused = True
            kind = REFUSALS[ErrorCode(record.error.code)]
            letter = _sent_letter(record, is_letter)
            if not is_letter:
                topic, partition = record.partition
                messages = [str(record.error)]
                self._check_limit(kind, messages)
                (added,) = self._added_headers(kind, TopicColumn((topic,)), np.array([partition], np.int32), messages)
                letter = letter._replace(error_headers=added)
                self._hold(letter if kind.reason is Reason.RECORD_TOO_LARGE else letter.timed(self._clock.epoch_ms()))
            elif kind.reason is Reason.RECORD_TOO_LARGE and (cut := self._cut(letter)) != letter:
                self._output.append_own(record.partition.topic, _columns([cut]))
            else:
                raise record.error
        return any_refused

    def _check_limit(self, kind: FaultKind, messages: Sequence[str]) -> None:
        """Counts rows that are rejected with these messages. Raises ``DeadLetterLimitError`` beyond the limit. An
        at-least-once write first sends the dead letters within the limit, because the error points to them; a
        transaction aborts.
        """
        self._output.meter.add_dead_letters(kind.reason.value, len(messages))
        self._count += len(messages)
        if (text := self._dead.over_limit(self._count)) is None:
            return
        if self._held and not self._is_transaction:
            with suppress(KafkaError):  # the task fails already, with another error
                self._append_held()
                self._output.core().flush(_LAST_FLUSH_MS)
        raise DeadLetterLimitError(f"Task {self._task}: {text} The last: {messages[-1]}")

    def _hold(self, letter: DeadLetter) -> None:
        self._held.append(letter)
        self._held_size += letter.data_size + _LETTER_OVERHEAD
        if self._held_size >= _PIECE_BYTES:
            self._append_held()

    def _cut(self, letter: DeadLetter) -> DeadLetter:
        self._output.meter.cut_letters += letter.value is not None
        return letter.cut()

    def _append_held(self) -> None:
        """Appends the held letters. A dead letter that is too large for its topic is cut."""
        held, self._held, self._held_size = self._held, [], 0
        if not held:
            return
        core, topic = self._output.core(), self._dead.topic
        core.partition_count(topic)
        of_topic = look_up_limits(self._output, [topic]).get(topic, LARGEST_INT32)
        limit = min(core.config.max_request_size, core.config.buffer_memory, of_topic)
        columns = _columns(held)
        too_large = _sizes(columns) > limit
        if too_large.any():
            columns = _columns([self._cut(held[row]) if cut else held[row] for row, cut in enumerate(too_large)])
            row = int(_sizes(columns).argmax())
            size = int(_sizes(columns)[row])
            if size > of_topic and exceeds(of_topic, core, columns, row, size):
                raise KafkaError(
                    f"Task {self._task}: even without the row's key, value and headers, a dead letter has {size} "
                    f"bytes, but deadLetterTopic {topic} takes at most {of_topic}. Raise the topic's "
                    "max.message.bytes."
                )
        self._output.append_own(topic, columns)


_CLASSES: Final = {
    "KEY_CONVERTER": "spark_kafka_sink.schemas.formats.task_formats.TaskFormats",
    "VALUE_CONVERTER": "spark_kafka_sink.schemas.formats.task_formats.TaskFormats",
    "HEADER_CONVERTER": "spark_kafka_sink.records.encode.header_column",
    KAFKA_PRODUCE: "spark_kafka_sink.producer.producer.KafkaProducer",
}

_CONNECT: Final = "__connect.errors."
_OMITTED: Final = "__pykafka.omitted."
_MAX_MESSAGE_LENGTH: Final = 2_000
_MAX_CACHED_HEADERS: Final = 1_000
_MAX_KEPT_BYTES: Final = 256
"""The most bytes of a key, and of headers, that a cut dead letter keeps."""

_ADDED: Final = (_CONNECT.encode(), _OMITTED.encode())


@lru_cache(_MAX_CACHED_HEADERS)
def _connect_headers(
    connector: str, task: int, kind: FaultKind, topic: str, partition: int, message: str
) -> _ErrorHeaders:
    """Connect's headers for a row. ``connector``: the name of the query. ``task``: Spark's partition. ``topic``: "" for
    none. ``partition``: the partition that the row names, -1 for none.
    """
    data = (
        _header("topic", topic) if topic else b"",
        _header("partition", str(partition)),
        _header("offset", "-1"),
        _header("connector.name", connector),
        _header("task.id", str(task)),
        _header("stage", kind.stage),
        _header("class.name", _CLASSES[kind.stage]),
        _header("exception.class.name", kind.exception),
        _entry(_CONNECT + "exception.message", message.encode()),
    )
    return _ErrorHeaders.of(9 if topic else 8, b"".join(data))


@lru_cache(256)
def _header(name: str, value: str) -> bytes:
    return _entry(_CONNECT + name, value.encode())


def _entry(name: str, value: bytes) -> bytes:
    key = name.encode()
    return encode_varint(len(key)) + key + encode_varint(len(value)) + value


class _ErrorHeaders(NamedTuple):
    """The headers that a dead letter gets besides the row's. ``alone``: the header section of a letter whose row has no
    headers."""

    number: int
    data: bytes
    alone: bytes

    @classmethod
    def of(cls, number: int, data: bytes) -> _ErrorHeaders:
        return cls(number, data, encode_varint(number) + data)

    def behind(self, section: bytes | None) -> bytes:
        """The header section with these headers behind the row's own."""
        if section is None:
            return self.alone
        own, begin = read_signed_varint(section, 0)
        return encode_varint(own + self.number) + section[begin:] + self.data


_NOTHING: Final = _ErrorHeaders.of(0, b"")


class DeadLetter(NamedTuple):
    """A rejected row as it would have been sent, and why it was not. ``headers``: the row's header section (None:
    it has none). ``error_headers``: the headers that say why."""

    key: bytes | None
    value: bytes | None
    headers: bytes | None
    error_headers: _ErrorHeaders
    timestamp: int

    @property
    def data_size(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + len(self.headers or b"")

    def timed(self, now_ms: int) -> DeadLetter:
        """The letter with the time of writing as its timestamp, because a broker may have refused the row's timestamp.
        A header keeps the row's."""
        own = _entry(f"{_OMITTED}timestamp", b"%d" % self.timestamp)
        return self._replace(
            error_headers=_ErrorHeaders.of(self.error_headers.number + 1, self.error_headers.data + own),
            timestamp=now_ms,
        )

    def cut(self) -> DeadLetter:
        """The letter without its value, and without its key and its own headers if they are longer than 256 bytes.
        Headers have the sizes and SHA-256 of these fields.
        """
        letter = self
        for field, name in (("value", "value"), ("key", "key"), ("headers", "headers")):
            data = getattr(self, field)
            if data is not None and (field == "value" or len(data) > _MAX_KEPT_BYTES):
                size = _entry(f"{_OMITTED}{name}.size", b"%d" % len(data))
                digest = _entry(f"{_OMITTED}{name}.sha256", sha256(data).hexdigest().encode())
                added = _ErrorHeaders.of(letter.error_headers.number + 2, letter.error_headers.data + size + digest)
                letter = letter._replace(error_headers=added, **{field: None})  # type: ignore[arg-type]  # not the timestamp
        return letter


def _columns(letters: Sequence[DeadLetter]) -> RecordColumns:
    return RecordColumns(
        bytes_column([letter.key for letter in letters]),
        bytes_column([letter.value for letter in letters]),
        bytes_column([letter.error_headers.behind(letter.headers) for letter in letters]),
        np.array([letter.timestamp for letter in letters], np.int64),
    )


def _sizes(columns: RecordColumns) -> Int64Array:
    return java_size_estimate(FieldLengths.of(columns))


def _values(column: pa.BinaryArray | None) -> Iterator[bytes | None]:
    """The values of a column, made in pieces, so that not all of them are Python objects at the same time."""
    if column is None:
        return repeat(None)
    return (value for start in range(0, len(column), 256) for value in column.slice(start, 256).to_pylist())


def _sent_letter(record: RefusedRecord, is_letter: bool) -> DeadLetter:
    """The dead letter for a record that a broker refused, which is a row, or a dead letter that keeps its error
    headers."""
    (batch,) = decode_batches(record.batch)
    (sent,) = batch.records
    added = [header for header in sent.headers if is_letter and header[0].startswith(_ADDED)]
    own = [header for header in sent.headers if header not in added]
    data = header_section(added)[len(encode_varint(len(added))) :]
    section = header_section(own) if own else None
    return DeadLetter(sent.key, sent.value, section, _ErrorHeaders.of(len(added), data), sent.timestamp)
