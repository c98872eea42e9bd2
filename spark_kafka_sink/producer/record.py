"""``ProducerRecord`` and ``RecordMetadata``, as in Java."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

from spark_kafka_sink.common.model import LARGEST_INT32, LARGEST_INT64
from spark_kafka_sink.errors import InvalidRecordError
from spark_kafka_sink.records.batch import NULL
from spark_kafka_sink.records.columns import topic_name
from spark_kafka_sink.records.varints import cached_varint

Headers = Sequence[tuple[str, bytes | None]]


class RecordMetadata(NamedTuple):
    """The place of a record in the log (Java's class of this name).

    ``offset``: -1 with acks=0. ``timestamp``: epoch ms, the broker's on a topic with LogAppendTime. Sizes in bytes, -1
    for null. There is no ``checksum``, as in Java since Kafka 3.0, because with magic 2 a CRC covers a whole batch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


@dataclass(init=False, slots=True)
class ProducerRecord:
    """A record to send. ``value`` and ``key``: arguments of the producer's serializers; bytes without serializers.

    ``partition``: None lets the partitioner choose. ``timestamp``: epoch ms, None = now. ``headers``: pairs of a str
    and bytes or None. Raises ``InvalidRecordError`` for an invalid field.
    """

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp: int | None
    headers: Headers | None

    def __init__(  # not a generated one, whose __post_init__ would take 70 ns a record
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        if topic.__class__ is not str or not topic:
            topic = topic_name(topic)
        if partition is not None:
            partition = _whole("partition", partition, "Partition number", LARGEST_INT32)
        if timestamp is not None:
            timestamp = _whole("timestamp", timestamp, "Timestamp", LARGEST_INT64)
        if headers is not None:
            headers = checked_headers(headers)
        self.topic = topic
        self.value = value
        self.key = key
        self.partition = partition
        self.timestamp = timestamp
        self.headers = headers

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.timestamp))


def check_partition_and_timestamp(record: ProducerRecord) -> None:
    """Raises ``InvalidRecordError`` if they are invalid, because a program may change them after it has made the
    record."""
    if record.partition is not None:
        record.partition = _whole("partition", record.partition, "Partition number", LARGEST_INT32)
    if record.timestamp is not None:
        record.timestamp = _whole("timestamp", record.timestamp, "Timestamp", LARGEST_INT64)


def _whole(name: str, given: object, what: str, most: int) -> int:
    """Any whole number (``__index__``), such as numpy's, but no bool, as an int."""
    try:
        value = index(given)  # type: ignore[arg-type]
    except TypeError:
        value = None
    if value is None or type(given).__name__ in ("bool", "bool_"):  # that of numpy 1 has __index__, too
        how = f"{name} must be an int or None, not {given!r}."
        if name == "timestamp":
            how += ' Epoch ms of a datetime are int(it.timestamp() * 1000) if it has a time zone: tz_localize("UTC").'
        raise InvalidRecordError(how)
    if value < 0:
        raise InvalidRecordError(f"Invalid {name}: {value}. {what} should always be non-negative or null.")
    if value > most:
        raise InvalidRecordError(f"Invalid {name}: {value}. {what} should be at most {most}.")
    return value


def as_bytes(name: str, given: object) -> bytes | None:
    """A key or value as plain bytes, for example of ``np.bytes_``. Raises ``InvalidRecordError``."""
    if given is None or given.__class__ is bytes:
        return given
    if not isinstance(given, bytes):
        raise InvalidRecordError(
            f"The {name} must be bytes or None, not {type(given).__name__}. Give the producer a "
            f"{name}_serializer that returns bytes."
        )
    return b"".join((given,))


def checked_headers(headers: Headers) -> Headers:
    """A copy. Raises ``InvalidRecordError`` for a header that is not a pair of a str and bytes or None."""
    if isinstance(headers, dict):
        raise InvalidRecordError("headers must be a list of pairs, not a dict: write headers=[*mapping.items()].")
    checked = []
    for header in headers:
        if len(header) != 2:
            raise InvalidRecordError(f"headers must be pairs of a str key and a bytes value, not {header!r}.")
        key, value = header
        if not isinstance(key, str):
            raise InvalidRecordError(f"A header's key must be a str, not {key!r}.")
        if value is not None and not isinstance(value, bytes):
            raise InvalidRecordError(f"The value of header {key!r} must be bytes or None, not {value!r}.")
        checked.append((key, value))
    return checked


def encode_headers(headers: Headers) -> bytes:
    """The header section of one record. Raises ``InvalidRecordError`` for headers that no record can have."""
    section = [cached_varint(len(headers))]
    try:
        for key, value in headers:
            section.append(_encoded_key(key))
            if value is None:
                section.append(NULL)
            elif isinstance(value, bytes):
                section.append(cached_varint(len(value)))
                section.append(value)
            else:
                raise TypeError(value)
    except UnicodeEncodeError as error:
        raise InvalidRecordError(
            f"A header's key must be valid Unicode: {error.object!r} cannot be encoded."
        ) from error
    except (TypeError, ValueError):
        checked_headers(headers)  # says what is wrong
        raise
    return b"".join(section)


@lru_cache(256)
def _encoded_key(key: str) -> bytes:
    """A header's key after its length. Cached, because programs use few different keys."""
    if not isinstance(key, str):
        raise TypeError(key)
    encoded = key.encode()
    return cached_varint(len(encoded)) + encoded
