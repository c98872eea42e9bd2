"""Dead letters as records of Kafka, with the headers of Kafka Connect, and as lines of JSON. No I/O.

Source: Connect's ``DeadLetterQueueReporter``.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.columns import Int32Array, RecordColumns, bytes_column, null_mask, one_array
from spark_kafka_sink.records.encode import header_column, header_entries, header_section
from spark_kafka_sink.records.sizes import FieldLengths, encode_varint, java_size_estimate
from spark_kafka_sink.spark.dead_letter_options import Reason

ILLEGAL_ARGUMENT: Final = "java.lang.IllegalArgumentException"
TOO_LARGE: Final = "org.apache.kafka.common.errors.RecordTooLargeException"
UNKNOWN: Final = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
SERIALIZATION: Final = "org.apache.kafka.common.errors.SerializationException"

KAFKA_PRODUCE: Final = "KAFKA_PRODUCE"
_CLASSES: Final = {
    "KEY_CONVERTER": "spark_kafka_sink.formats.task_formats.TaskFormats",
    "VALUE_CONVERTER": "spark_kafka_sink.formats.task_formats.TaskFormats",
    "HEADER_CONVERTER": "spark_kafka_sink.records.encode.header_column",
    KAFKA_PRODUCE: "spark_kafka_sink.producer.producer.KafkaProducer",
}

CONNECT: Final = "__connect.errors."
OMITTED: Final = "__pykafka.omitted."
_LONGEST_MESSAGE: Final = 2_000
_NO_PARTITION: Final = -1
_NULL_TOPIC: Final = "The topic of the row is null, and the option topic is not set."


class LetterFault(NamedTuple):
    """Why a row cannot be written. ``exception``: Java's class; ``stage``: Connect's name."""

    reason: Reason
    message: str
    exception: str
    stage: str = KAFKA_PRODUCE


@dataclass(frozen=True, slots=True)
class Letters:
    """Rows that cannot be written, as they would have been sent. ``topics``: None for a null one. ``partitions``: -1
    for none. ``timestamps``: epoch ms.
    """

    topics: Sequence[str | None]
    columns: RecordColumns
    partitions: Int32Array
    timestamps: Sequence[int]
    faults: Sequence[LetterFault]


class LetterHeaders:
    """Adds Connect's headers. ``connector``: name of the query, ``task``: Spark's partition; ``connect`` False: none
    are added.
    """

    def __init__(self, connector: str, task: int, connect: bool) -> None:
        self._connector = _header("connector.name", connector)
        self._task = _header("task.id", str(task))
        self._connect = connect
        self._alike: dict[tuple[str | None, int, str, str], bytes] = {}
        """The headers before the message, of rows that differ only by it."""

    def added(self, topic: str | None, partition: int, fault: LetterFault) -> tuple[int, bytes]:
        """The number of headers that a row gets, and their bytes."""
        if not self._connect:
            return 0, b""
        kind = topic, partition, fault.stage, fault.exception
        alike = self._alike.get(kind)
        if alike is None:
            alike = self._alike[kind] = self._without_message(*kind)
        message = fault.message[:_LONGEST_MESSAGE].encode()
        return (8 if topic is None else 9), b"".join((alike, _MESSAGE, encode_varint(len(message)), message))

    def _without_message(self, topic: str | None, partition: int, stage: str, exception: str) -> bytes:
        return b"".join(
            (
                b"" if topic is None else _header("topic", topic),
                _header("partition", str(partition)),
                _header("offset", "-1"),
                self._connector,
                self._task,
                _header("stage", stage),
                _header("class.name", _CLASSES[stage]),
                _header("exception.class.name", exception),
            )
        )

    def records(self, letters: Letters, limit: int) -> RecordColumns:
        """The dead letters. A record that takes more than ``limit`` bytes goes without its value, then also without its
        key and its own headers; headers tell their sizes and SHA-256.
        """
        sections = []
        own = None if letters.columns.headers is None else letters.columns.headers.to_pylist()
        rows = zip(letters.topics, letters.partitions.tolist(), letters.faults, strict=True)
        for row, (topic, partition, fault) in enumerate(rows):
            count, added = self.added(topic, partition, fault)
            sections.append(_joined(None if own is None else own[row], count, added))
        columns = RecordColumns(
            letters.columns.key, letters.columns.value, bytes_column(sections), np.array(letters.timestamps, np.int64)
        )
        too_large = np.flatnonzero(java_size_estimate(FieldLengths.of(columns)) > limit).tolist()
        return self._shortened(columns, letters, too_large, limit) if too_large else columns

    def _shortened(self, columns: RecordColumns, letters: Letters, rows: Sequence[int], limit: int) -> RecordColumns:
        keys, values, sections = (
            _values(columns.key, columns),
            _values(columns.value, columns),
            _values(columns.headers, columns),
        )
        own = _values(letters.columns.headers, columns)
        for row in rows:
            count, added = self.added(letters.topics[row], int(letters.partitions[row]), letters.faults[row])
            fields: dict[str, bytes | None] = {"value": values[row], "key": keys[row], "headers": own[row]}
            for name, data in list(fields.items()):
                if data is None:
                    continue
                fields[name] = None
                count, added = count + 2, added + _omitted(name, data)
                sections[row] = _joined(fields["headers"], count, added)
                if _size(fields["key"], fields["value"], sections[row]) <= limit:
                    break
            keys[row], values[row] = fields["key"], fields["value"]
        return RecordColumns(bytes_column(keys), bytes_column(values), bytes_column(sections), columns.timestamps)


def json_lines(letters: Letters, **of_task: object) -> bytes:
    """A line per row. key, value and the headers' values are in Base64. ``of_task``: fields of every line."""
    columns = letters.columns
    keys, values = _values(columns.key, columns), _values(columns.value, columns)
    headers = _values(columns.headers, columns)
    lines = []
    for row, fault in enumerate(letters.faults):
        line = {
            **of_task,
            "reason": fault.reason.value,
            "message": fault.message,
            "exception": fault.exception,
            "topic": letters.topics[row],
            "partition": None if letters.partitions[row] == _NO_PARTITION else int(letters.partitions[row]),
            "timestamp": letters.timestamps[row],
            "key": _base64(keys[row]),
            "value": _base64(values[row]),
            "headers": _header_pairs(headers[row]),
        }
        lines.append(json.dumps(line, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


def lenient_header_column(array: pa.Array) -> pa.BinaryArray:
    """``header_column`` without the headers whose key is null."""
    try:
        return header_column(array)
    except InvalidRecordError:
        counts, keys, values = header_entries(one_array(array))
    entries = list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    ends = np.cumsum(counts).tolist()
    kept = (
        [each for each in entries[start:end] if each[0] is not None]
        for start, end in zip((0, *ends), ends, strict=False)
    )
    return bytes_column([header_section(each) for each in kept])


def null_header_rows(array: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The rows with a header whose key is null."""
    counts, keys, _ = header_entries(one_array(array))
    bad = np.zeros(len(counts), np.bool_)
    if keys.null_count:
        bad[np.repeat(np.arange(len(counts)), counts)[null_mask(keys)]] = True
    return bad


def null_topic_faults(column: pa.Array) -> dict[int, LetterFault]:
    """By row."""
    fault = LetterFault(Reason.NULL_TOPIC, _NULL_TOPIC, ILLEGAL_ARGUMENT)
    return dict.fromkeys(np.flatnonzero(null_mask(column)).tolist(), fault)


def json_column(array: pa.Array) -> pa.BinaryArray:
    """Each value as JSON, bytes in it as Base64; null where it is null. A value that Python cannot represent, such as a
    date after the year 9999, is a row of Arrow's IPC format in Base64.
    """
    return bytes_column([_json(array.slice(row, 1)) for row in range(len(array))])


def _json(slot: pa.Array) -> bytes | None:
    try:
        value = slot.to_pylist()[0]
    except (OverflowError, ValueError):
        row = pa.RecordBatch.from_arrays([slot], ["value"]).serialize()
        value = {"arrow": _base64(row.to_pybytes())}
    return None if value is None else json.dumps(value, default=_jsonable, separators=(",", ":")).encode()


def _jsonable(value: object) -> str:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    isoformat: Callable[[], str] | None = getattr(value, "isoformat", None)
    return str(value) if isoformat is None else isoformat()


@lru_cache(256)
def _header(name: str, value: str) -> bytes:
    return _entry(CONNECT + name, value.encode())


def _entry(name: str, value: bytes) -> bytes:
    key = name.encode()
    return encode_varint(len(key)) + key + encode_varint(len(value)) + value


_MESSAGE: Final = encode_varint(len(CONNECT + "exception.message")) + (CONNECT + "exception.message").encode()


def omitted_headers(field: str, data: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Tell what a dead letter without a field lacks."""
    name, digest = f"{OMITTED}{field}", sha256(data).hexdigest()
    return (f"{name}.size".encode(), b"%d" % len(data)), (f"{name}.sha256".encode(), digest.encode())


def _omitted(field: str, data: bytes) -> bytes:
    return b"".join(_entry(name.decode(), value) for name, value in omitted_headers(field, data))


def _joined(section: bytes | None, count: int, added: bytes) -> bytes:
    """A header section with more headers behind its own."""
    if section is None:
        return encode_varint(count) + added
    own, begin = _counted(section)
    return encode_varint(own + count) + section[begin:] + added


def _counted(section: bytes) -> tuple[int, int]:
    """The number of headers of a section, and where the first begins."""
    number = shift = position = 0
    while True:
        byte = section[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return number >> 1, position


def _header_pairs(section: bytes | None) -> list[list[str | None]]:
    """Key and value (Base64) of each header."""
    if section is None:
        return []
    count, position = _counted(section)
    pairs = []
    for _ in range(count):
        key, position = _field(section, position)
        value, position = _field(section, position)
        pairs.append([(key or b"").decode(errors="replace"), _base64(value)])
    return pairs


def _field(section: bytes, position: int) -> tuple[bytes | None, int]:
    if section[position] == 1:  # zigzag of -1
        return None, position + 1
    length, begin = _counted(section[position : position + 5])
    begin += position
    return section[begin : begin + length], begin + length


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _values(column: pa.BinaryArray | None, of: RecordColumns) -> list[Any]:
    return [None] * len(of) if column is None else column.to_pylist()


def _size(key: bytes | None, value: bytes | None, section: bytes) -> int:
    columns = RecordColumns(bytes_column([key]), bytes_column([value]), bytes_column([section]))
    return int(java_size_estimate(FieldLengths.of(columns))[0])
