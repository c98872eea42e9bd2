"""Dead letters as records of Kafka, with the headers of Kafka Connect. No I/O.

Source: Connect's ``DeadLetterQueueReporter``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from spark_kafka_sink.producer.append.receipt import RefusedRecord
from spark_kafka_sink.records.columns import (
    Int32Array,
    Int64Array,
    RecordColumns,
    TopicColumn,
    bytes_column,
)
from spark_kafka_sink.records.decode import DecodedRecord, decode_batches
from spark_kafka_sink.records.encode import header_section
from spark_kafka_sink.records.sizes import FieldLengths, encode_varint, java_size_estimate
from spark_kafka_sink.spark.dead_letters.options import Reason
from spark_kafka_sink.spark.rows import KAFKA_PRODUCE, TOO_LARGE, FaultKind

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

_Headers: TypeAlias = tuple[tuple[bytes, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Letters:
    """Rows that cannot be written, as they would have been sent. ``topics``: "" for a null one. ``partitions``: as the
    rows name them, -1 for none; None: no row names one. ``timestamps``: epoch ms.
    """

    kind: FaultKind
    messages: Sequence[str]
    topics: TopicColumn
    columns: RecordColumns
    partitions: Int32Array | None
    timestamps: Int64Array

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


class LetterHeaders:
    """Adds Connect's headers. ``connector``: name of the query, ``task``: Spark's partition; ``connect`` False: none
    are added.
    """

    def __init__(self, connector: str, task: int, connect: bool) -> None:
        self._connector = _header("connector.name", connector)
        self._task = _header("task.id", str(task))
        self._connect = connect
        self._kept: dict[FaultKind, dict[tuple[tuple[str, int], str], _Added]] = {}
        """What ``_added`` returned for rows of this kind, place and message."""

    def records(self, all_letters: Sequence[Letters], limit: int) -> RecordColumns:
        """The dead letters. A record that takes more than ``limit`` bytes goes without its value, then also without its
        key and its own headers; headers tell their sizes and SHA-256.
        """
        columns = RecordColumns(
            _joined([(each.columns.key, len(each)) for each in all_letters]),
            _joined([(each.columns.value, len(each)) for each in all_letters]),
            bytes_column([section for each in all_letters for section in self._sections(each)]),
            np.concatenate([each.timestamps for each in all_letters]),
        )
        too_large = np.flatnonzero(java_size_estimate(FieldLengths.of(columns)) > limit).tolist()
        return self._shortened(columns, all_letters, too_large, limit) if too_large else columns

    def _sections(self, letters: Letters) -> Iterable[bytes]:
        """Each row's own headers and Connect's."""
        own, added = letters.columns.headers, self._added(letters)
        if own is None:
            return [each.alone for each in added]
        return map(_Added.behind, added, own.to_pylist())

    def _added(self, letters: Letters) -> Sequence[_Added]:
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
        self, columns: RecordColumns, all_letters: Sequence[Letters], rows: Sequence[int], limit: int
    ) -> RecordColumns:
        keys, values, sections = (
            _values(columns.key, columns),
            _values(columns.value, columns),
            _values(columns.headers, columns),
        )
        owns = [own for letters in all_letters for own in _values(letters.columns.headers, letters)]
        all_added = [added for letters in all_letters for added in self._added(letters)]
        for row in rows:
            added = all_added[row]
            fields: dict[str, bytes | None] = {"value": values[row], "key": keys[row], "headers": owns[row]}
            for name, data in list(fields.items()):
                if data is None:
                    continue
                fields[name] = None
                added = added.and_omitted(name, data)
                sections[row] = added.behind(fields["headers"])
                if _size(fields["key"], fields["value"], sections[row]) <= limit:
                    break
            keys[row], values[row] = fields["key"], fields["value"]
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


def _omitted_headers(field: str, data: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Tell what a dead letter without a field lacks."""
    name, digest = f"{_OMITTED}{field}", sha256(data).hexdigest()
    return (f"{name}.size".encode(), b"%d" % len(data)), (f"{name}.sha256".encode(), digest.encode())


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
        entries = [_entry(name.decode(), value) for name, value in _omitted_headers(field, data)]
        return _Added.of(self.number + len(entries), self.data + b"".join(entries))


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


def _joined(parts: Sequence[tuple[pa.BinaryArray | None, int]]) -> pa.BinaryArray | None:
    """Columns with their numbers of rows, one after the other; an absent one is null."""
    if all(column is None for column, _ in parts):
        return None
    return pa.concat_arrays([pa.nulls(rows, pa.binary()) if column is None else column for column, rows in parts])


def _values(column: pa.BinaryArray | None, of: Sized) -> list[Any]:
    return [None] * len(of) if column is None else column.to_pylist()


def _size(key: bytes | None, value: bytes | None, section: bytes) -> int:
    columns = RecordColumns(bytes_column([key]), bytes_column([value]), bytes_column([section]))
    return int(java_size_estimate(FieldLengths.of(columns))[0])


def refused_letter(record: RefusedRecord) -> Letters:
    """The dead letter for a row that the broker refused. Its partition is the one that it was sent to."""
    sent = _sent_record(record)
    kind = FaultKind(Reason.RECORD_TOO_LARGE, TOO_LARGE)
    columns = _one_record(sent, sent.key, sent.value, sent.headers)
    where = np.array([record.partition.partition], np.int32)
    times = np.array([sent.timestamp], np.int64)
    return Letters(kind, [str(record.error)], TopicColumn((record.partition.topic,)), columns, where, times)


def shorter_letter(record: RefusedRecord) -> RecordColumns | None:
    """A refused dead letter without its value; one without a value also without its key; one without both also without
    the row's own headers. None: it has none of them.
    """
    sent = _sent_record(record)
    added = tuple(each for each in sent.headers if each[0].startswith(_ADDED))
    own = tuple(each for each in sent.headers if not each[0].startswith(_ADDED))
    if sent.value is not None:
        return _one_record(sent, sent.key, None, sent.headers + _omitted_headers("value", sent.value))
    if sent.key is not None:
        return _one_record(sent, None, None, sent.headers + _omitted_headers("key", sent.key))
    if own:
        return _one_record(sent, None, None, added + _omitted_headers("headers", header_section(own)))
    return None


def _sent_record(record: RefusedRecord) -> DecodedRecord:
    (batch,) = decode_batches(record.batch)
    (sent,) = batch.records
    return sent


def _one_record(sent: DecodedRecord, key: bytes | None, value: bytes | None, headers: _Headers) -> RecordColumns:
    return RecordColumns(
        key=bytes_column([key]),
        value=bytes_column([value]),
        headers=bytes_column([header_section(headers)]),
        timestamps=np.array([sent.timestamp], np.int64),
    )
