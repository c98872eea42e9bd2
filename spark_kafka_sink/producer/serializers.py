"""From keys and values to bytes (Java: ``org.apache.kafka.common.serialization``).

``None`` stays ``None`` in all of them: a null key, or a tombstone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from spark_kafka_sink.errors import SerializationError


class Serializer(Protocol):
    """What a producer takes as ``key_serializer`` or ``value_serializer``; a class may inherit what it does not need.

    ``serialize`` is called on the thread that sends, several at once when several do.
    """

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Called once, before anything else: the producer's options by Kafka's names, and what it is to serialize."""
        return

    def serialize(self, topic: str, data: Any) -> bytes | None:
        """The bytes to store. What this raises is what ``send`` raises; the record is not sent."""

    def close(self) -> None:
        """Called once, when the producer is closed."""
        return


class BytesSerializer(Serializer):
    """bytes as they are, bytearrays and memoryviews copied (Java: ``ByteArraySerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None or data.__class__ is bytes:
            return data
        if not isinstance(data, bytes | bytearray | memoryview):
            raise _refusal(self, topic, data, "bytes, a bytearray or a memoryview")
        return bytes(data)


class StringSerializer(Serializer):
    """str in ``encoding`` (Java: ``StringSerializer``). A lone surrogate is an error, as it is no text."""

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)  # an encoding that does not exist is an error here, not at the first record
        self._encoding = encoding

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, str):
            raise _refusal(self, topic, data, "a str")
        try:
            return data.encode(self._encoding)
        except UnicodeEncodeError as error:
            raise SerializationError(f"StringSerializer cannot serialize a text for topic {topic}: {error}.") from error


class _WholeNumberSerializer(Serializer):
    """Whole numbers, big-endian, in as many bytes as ``size``."""

    size: ClassVar[int]

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, int) or isinstance(data, bool):
            raise _refusal(self, topic, data, "an int")
        try:
            return data.to_bytes(self.size, "big", signed=True)
        except OverflowError as error:
            bits = 8 * self.size - 1
            raise _refusal(self, topic, data, f"an int from -2^{bits} to 2^{bits} - 1") from error


class IntegerSerializer(_WholeNumberSerializer):
    """int in 4 bytes, big-endian (Java: ``IntegerSerializer``)."""

    size = 4


class LongSerializer(_WholeNumberSerializer):
    """int in 8 bytes, big-endian (Java: ``LongSerializer``)."""

    size = 8


class DoubleSerializer(Serializer):
    """float, or int, in 8 bytes, big-endian IEEE 754 (Java: ``DoubleSerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        if not isinstance(data, float | int) or isinstance(data, bool):
            raise _refusal(self, topic, data, "a float")
        try:
            return struct.pack(">d", float(data))
        except OverflowError as error:
            raise _refusal(self, topic, data, "a number that a double can hold") from error


class JsonSerializer(Serializer):
    """Anything that the json module takes, as compact UTF-8; keys stay in their order. NaN and infinity are no JSON."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is None:
            return None
        try:
            return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(
                f"JsonSerializer cannot serialize a {type(data).__name__} for topic {topic}: {error}."
            ) from error


class NullSerializer(Serializer):
    """None and nothing else (Java: ``VoidSerializer``)."""

    def serialize(self, topic: str, data: Any) -> bytes | None:
        if data is not None:
            raise _refusal(self, topic, data, "None")
        return None


def _refusal(serializer: Serializer, topic: str, data: object, wanted: str) -> SerializationError:
    return SerializationError(
        f"{type(serializer).__name__} takes {wanted}, not the {type(data).__name__} {data!r:.80} (topic {topic})."
    )
